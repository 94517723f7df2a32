// The buttons of the sidebar that show or hide pages get the name that the theme does not give them.
for (const button of document.querySelectorAll(".bd-sidebar-primary summary")) {
  button.ariaLabel = `Pages of ${button.closest("li").querySelector("a").textContent}`;
}
