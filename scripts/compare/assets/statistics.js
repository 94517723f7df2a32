// Numbers as people write them, intervals over seeds, and differences paired by seed.

/** Four significant digits. */
function digits(value, count = 4) {
  if (value === null || value === undefined || Number.isNaN(value)) return "-";
  const text = Number(value.toPrecision(count));
  return Math.abs(text) >= 1e7 || (text !== 0 && Math.abs(text) < 1e-4) ? text.toExponential() : String(text);
}

/** `12.7 ± 1.2`: both to the place of the interval's second digit. */
function plusMinus(mean, half, signed = false) {
  if (mean === null || mean === undefined) return "-";
  const sign = signed && mean > 0 ? "+" : "";
  const none = half === null || half === undefined || half < 1e-6 * Math.abs(mean); // but for what rounding leaves
  if (none || half === 0) return sign + digits(mean);
  const places = Math.max(0, Math.min(8, 1 - Math.floor(Math.log10(half))));
  return `${sign}${mean.toFixed(places)} ± ${half.toFixed(places)}`;
}

/** Mean and half width of the 95 % t-interval, over the values that there are. */
function interval(values) {
  const present = values.filter((value) => value !== null), count = present.length;
  if (!count) return { mean: null, half: null, count };
  const mean = present.reduce((sum, value) => sum + value, 0) / count;
  if (count < 2) return { mean, half: null, count };
  const squares = present.reduce((sum, value) => sum + (value - mean) ** 2, 0);
  return { mean, half: DATA.quantiles[count - 2] * Math.sqrt(squares / (count - 1) / count), count };
}

/** The differences of a final metric between two groups, over the seeds that both have; null where there are none. */
function paired(group, reference, name) {
  const mine = group.final[name], other = reference?.final[name];
  if (!isPerSeed(name) || group === reference || !mine || !other || !group.done || !reference.done) return null;
  const result = interval(group.seeds.map((seed, i) => {
    const j = reference.seeds.indexOf(seed);
    return j < 0 || mine[i] === null || other[j] === null ? null : mine[i] - other[j];
  }));
  return result.count ? result : null;
}
