// Times and lengths of time as people read them: the same words as coordinator/lib/times.py, which draws the first
// page. tests/pages/test_time_words.py compares the two.
const leeway = 1.05, justNow = 10, minute = 60, hour = 3600, day = 86_400, week = 7 * day;
const months = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];

const twoDigits = (number) => String(number).padStart(2, "0");

// `just now`, `5m ago`, `in 2h`; further away than a week, the date in the reader's zone. Both are Dates. What is ahead
// is rounded down with a leeway: what was set for two hours is said to be in 2h, not in 1h.
export function relative(moment, now) {
  const seconds = (now - moment) / 1000;
  if (Math.abs(seconds) >= week) return date(moment, now);
  if (seconds <= -justNow) return `in ${rough(-seconds * (-seconds < minute ? 1 : leeway))}`;
  return seconds < justNow ? "just now" : `${rough(seconds)} ago`;
}

function date(moment, now) {
  const dayAndMonth = `${moment.getDate()} ${months[moment.getMonth()]}`;
  return moment.getFullYear() === now.getFullYear() ? dayAndMonth : `${dayAndMonth} ${moment.getFullYear()}`;
}

// `42s`, `5m`, `2h`, `3d`: the largest unit of a number of seconds, rounded down.
export function rough(seconds) {
  for (const [size, sign] of [[day, "d"], [hour, "h"], [minute, "m"]]) {
    if (seconds >= size) return `${Math.floor(seconds / size)}${sign}`;
  }
  return `${Math.floor(seconds)}s`;
}

// `340 ms`, `2.4 s`, `4m 12s`, `2h 03m`, `3d 4h` for a number of seconds; of two clocks that differ, no time.
export function length(seconds) {
  if (seconds < 0) return length(0);
  if (seconds < 1) return `${Math.floor(seconds * 1000 + 0.5)} ms`;
  if (seconds < 10) return `${(Math.floor(seconds * 10 + 0.5) / 10).toFixed(1)} s`;
  return clock(seconds);
}

// The same for what ticks: whole seconds, and none below 0.
export function clock(seconds) {
  const whole = Math.max(0, Math.floor(seconds));
  if (whole < minute) return `${whole} s`;
  if (whole < hour) return `${Math.floor(whole / minute)}m ${twoDigits(whole % minute)}s`;
  if (whole < day) return `${Math.floor(whole / hour)}h ${twoDigits(Math.floor((whole % hour) / minute))}m`;
  return `${Math.floor(whole / day)}d ${Math.floor((whole % day) / hour)}h`;
}
