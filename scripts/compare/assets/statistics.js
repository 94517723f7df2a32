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

/** Mean and half width of the interval at the first of DATA.levels (95 %), over the values that there are. */
function interval(values) {
  const present = values.filter((value) => value !== null), count = present.length;
  if (!count) return { mean: null, half: null, count };
  const mean = present.reduce((sum, value) => sum + value, 0) / count;
  if (count < 2) return { mean, half: null, count };
  const squares = present.reduce((sum, value) => sum + (value - mean) ** 2, 0);
  const error = Math.sqrt(squares / (count - 1) / count);
  return { mean, half: DATA.quantiles[count - 2][0] * error, error, count };
}

/** The differences of a final metric between two groups, over the seeds that both have; null where there are none. */
function paired(group, reference, name) {
  const mine = group.final[name], other = reference?.final[name];
  if (!isPerSeed(name) || group === reference || !mine || !other || !group.done || !reference.done) return null;
  const result = interval(group.seeds.map((seed, i) => {
    const j = reference.seeds.indexOf(seed);
    return j < 0 || mine[i] === null || other[j] === null ? null : mine[i] - other[j];
  }));
  if (!result.count) return null;
  if (!result.error) return { ...result, level: null };
  const statistic = Math.abs(result.mean) / result.error;
  const met = DATA.levels.filter((_, i) => statistic > DATA.quantiles[result.count - 2][i]);
  return { ...result, level: met.length ? met[met.length - 1] : 1 };
}

function significance(difference) {
  if (!difference || difference.level === null) return "-";
  return difference.level === 1 ? `p > ${DATA.levels[0]}` : `p < ${difference.level}`;
}
