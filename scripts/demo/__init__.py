"""The demo: every experiment in little, on bundled data, with an answer on the screen and a page."""
