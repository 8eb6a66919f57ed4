// What the report does beyond showing itself: sorting tables, zooming timelines, and saying what a mark is.
// The page is complete without it. Nothing is fetched.
'use strict';

(() => {
  // --- Tables -------------------------------------------------------------------------------------------------------

  function sortValue(row, column) {
    const cell = row.cells[column];
    if (!cell || cell.colSpan > 1) return null;
    if (cell.dataset.value !== undefined) return Number(cell.dataset.value);
    return cell.classList.contains('none') ? null : cell.textContent.trim();
  }

  // Empty cells stay last in both directions.
  function compare(a, b, sign) {
    if (a === null || b === null) return (a === null) - (b === null);
    if (typeof a === 'number' && typeof b === 'number') return sign * (a - b);
    return sign * String(a).localeCompare(String(b));
  }

  function makeSortable(table) {
    const heads = Array.from(table.tHead.rows[0].cells);
    heads.forEach((head, column) => {
      const sort = () => {
        const descending = head.getAttribute('aria-sort') === 'ascending';
        heads.forEach((other) => other.removeAttribute('aria-sort'));
        head.setAttribute('aria-sort', descending ? 'descending' : 'ascending');
        const rows = Array.from(table.tBodies[0].rows);
        const keyed = rows.map((row) => [sortValue(row, column), row]);
        keyed.sort((a, b) => compare(a[0], b[0], descending ? -1 : 1));
        keyed.forEach(([, row]) => table.tBodies[0].append(row));
      };
      head.tabIndex = 0;
      head.addEventListener('click', sort);
      head.addEventListener('keydown', (event) => {
        if (event.key === 'Enter' || event.key === ' ') {
          event.preventDefault();
          sort();
        }
      });
    });
    table.classList.add('ready');
  }

  // --- Durations ----------------------------------------------------------------------------------------------------

  function durationText(ps) {
    if (ps >= 1e12) return (ps / 1e12).toFixed(3) + ' s';
    if (ps >= 1e9) return (ps / 1e9).toFixed(3) + ' ms';
    return (ps / 1e6).toFixed(1) + ' \u00b5s';
  }

  // --- Timelines ----------------------------------------------------------------------------------------------------

  const kFieldsOfMark = 7;  // key, layer, chunk, gap to the mark before, length, ops, busy

  // The flat list of a row as marks with absolute starts, in units.
  function decodeRow(flat) {
    const marks = [];
    let reach = 0;
    for (let i = 0; i < flat.length; i += kFieldsOfMark) {
      const start = reach + flat[i + 3];
      reach = start + flat[i + 4];
      marks.push({
        key: flat[i], layer: flat[i + 1], chunk: flat[i + 2], start, end: reach, ops: flat[i + 5], busy: flat[i + 6],
      });
    }
    return marks;
  }

  // The mark at `unit`, or the nearest one within `slack` units.
  function findMark(marks, unit, slack) {
    let low = 0;
    let high = marks.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (marks[middle].end < unit) low = middle + 1;
      else high = middle;
    }
    let best = null;
    let distance = slack;
    for (const mark of marks.slice(Math.max(0, low - 1), low + 2)) {
      const away = Math.max(mark.start - unit, unit - mark.end, 0);
      if (away <= distance) {
        best = mark;
        distance = away;
        if (away === 0) break;
      }
    }
    return best;
  }

  function markText(mark, trace) {
    const [label, pass] = trace.keys[mark.key];
    const lines = [];
    if (mark.ops === 1) {
      lines.push(label + ' (' + pass + ')');
    } else {
      lines.push(mark.ops + ' launches, merged; the first: ' + label + ' (' + pass + ')');
    }
    const place = [];
    if (mark.layer >= 0) place.push('layer ' + mark.layer);
    if (mark.chunk >= 0) place.push('chunk ' + mark.chunk);
    if (place.length > 0) lines.push(place.join(', '));
    lines.push('start ' + durationText(trace.begin_ps + mark.start * trace.unit_ps));
    const length = durationText((mark.end - mark.start) * trace.unit_ps);
    if (mark.ops === 1) {
      lines.push('takes ' + length);
    } else {
      lines.push('spans ' + length + ', busy for ' + durationText(mark.busy * trace.unit_ps));
    }
    return lines.join('\n');
  }

  const tip = document.createElement('div');
  tip.className = 'tl-tip';
  tip.hidden = true;

  function showTip(text, event) {
    tip.textContent = text;
    tip.hidden = false;
    const box = tip.getBoundingClientRect();
    const x = Math.min(event.clientX + 14, window.innerWidth - box.width - 8);
    const below = event.clientY + 18;
    const y = below + box.height > window.innerHeight ? event.clientY - box.height - 10 : below;
    tip.style.left = Math.max(4, x) + 'px';
    tip.style.top = y + 'px';
  }

  // The largest of 1, 2, 5 times a power of ten that gives at least four intervals.
  function tickStep(span) {
    let step = Math.pow(10, Math.floor(Math.log10(span / 4)));
    for (const factor of [5, 2]) {
      if (step * factor * 4 <= span) return step * factor;
    }
    return step;
  }

  function drawAxis(svg, trace, view) {
    const begin = trace.begin_ps + view.begin * trace.unit_ps;
    const span = view.span * trace.unit_ps;
    const step = tickStep(span);
    const texts = [];
    for (let tick = Math.ceil(begin / step) * step; tick <= begin + span; tick += step) {
      const percent = ((tick - begin) / span) * 100;
      if (percent < 2 || percent > 96) continue;
      const text = document.createElementNS('http://www.w3.org/2000/svg', 'text');
      text.setAttribute('x', percent.toFixed(2) + '%');
      text.setAttribute('y', '13');
      text.setAttribute('text-anchor', 'middle');
      text.textContent = durationText(tick);
      texts.push(text);
    }
    svg.replaceChildren(...texts);
    svg.parentNode.querySelector('.tl-busy').textContent = '';
  }

  function makeTimeline(root, trace) {
    const bars = Array.from(root.querySelectorAll('.tl-bar'));
    const rows = bars.map((bar) => decodeRow(trace.rows[Number(bar.dataset.row)]));
    const whole = bars[0].viewBox.baseVal.width;
    const axis = root.querySelector('.tl-axis');
    const view = { begin: 0, span: whole };

    function apply(begin, span) {
      view.span = Math.min(whole, Math.max(span, whole / 2000));
      view.begin = Math.min(Math.max(0, begin), whole - view.span);
      const box = view.begin + ' 0 ' + view.span + ' 16';
      bars.forEach((bar) => bar.setAttribute('viewBox', box));
      drawAxis(axis, trace, view);
    }
    function zoom(factor, at) {
      apply(view.begin + view.span * at * (1 - factor), view.span * factor);
    }

    let drag = null;
    bars.forEach((bar, index) => {
      const title = bar.querySelector('title');  // the tip replaces the browser's own
      if (title) {
        bar.setAttribute('aria-label', title.textContent);
        title.remove();
      }
      const share = (event) => {
        const box = bar.getBoundingClientRect();
        return (event.clientX - box.left) / box.width;
      };
      bar.addEventListener('pointerdown', (event) => {
        drag = { at: share(event), begin: view.begin };
        bar.setPointerCapture(event.pointerId);
      });
      bar.addEventListener('pointerup', () => { drag = null; });
      bar.addEventListener('pointercancel', () => { drag = null; });
      bar.addEventListener('pointerleave', () => { tip.hidden = true; });
      bar.addEventListener('pointermove', (event) => {
        if (drag) {
          apply(drag.begin + (drag.at - share(event)) * view.span, view.span);
          return;
        }
        const slack = (view.span * 3) / bar.getBoundingClientRect().width;
        const mark = findMark(rows[index], view.begin + share(event) * view.span, slack);
        if (mark) showTip(markText(mark, trace), event);
        else tip.hidden = true;
      });
      bar.addEventListener('wheel', (event) => {
        if (!event.ctrlKey) return;
        event.preventDefault();
        zoom(event.deltaY > 0 ? 1.25 : 0.8, share(event));
      }, { passive: false });
    });

    const tools = document.createElement('div');
    tools.className = 'tl-tools';
    const actions = [
      ['\u2212', 'Zoom out', () => zoom(2, 0.5)],
      ['+', 'Zoom in', () => zoom(0.5, 0.5)],
      ['\u2190', 'Move left', () => apply(view.begin - view.span / 3, view.span)],
      ['\u2192', 'Move right', () => apply(view.begin + view.span / 3, view.span)],
      ['All', 'Show everything', () => apply(0, whole)],
    ];
    for (const [text, name, action] of actions) {
      const button = document.createElement('button');
      button.type = 'button';
      button.textContent = text;
      button.title = name;
      button.setAttribute('aria-label', name);
      button.addEventListener('click', action);
      tools.append(button);
    }
    root.prepend(tools);
    root.classList.add('zoomable');
  }

  document.querySelectorAll('table.sortable').forEach(makeSortable);
  document.body.append(tip);
  const traces = JSON.parse(document.getElementById('traces').textContent);
  document.querySelectorAll('.timeline').forEach((root) => makeTimeline(root, traces[Number(root.dataset.trace)]));
  document.documentElement.dataset.ready = 'true';  // the browser test waits for it
})();
