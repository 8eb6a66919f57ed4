// Writes the report of the test fixtures to a file, with a probe in it that uses the page as a person would and leaves
// what it saw in <pre id="probe">: one "name value" a line.
#include <fstream>
#include <iostream>
#include <string>

#include "reports/report.h"
#include "tests/unit/reports/fixtures.h"

namespace {

// Runs before everything else: collects what goes wrong.
constexpr const char* kBefore = R"(<script>
window.faults = [];
window.addEventListener('error', (event) => window.faults.push(event.message));
for (const level of ['error', 'warn']) {
  const log = console[level];
  console[level] = (...args) => { window.faults.push(args.join(' ')); log.apply(console, args); };
}
</script>
)";

// Runs after the page's own script.
constexpr const char* kAfter = R"(<script>
window.addEventListener('load', () => {
  const lines = [];
  const say = (name, value) => lines.push(name + ' ' + value);
  try {
    say('ready', document.documentElement.dataset.ready);
    const bars = Array.from(document.querySelectorAll('.tl-bar'));
    say('timeline-rows', bars.length);
    say('marks', bars.reduce((sum, bar) => sum + Number(bar.dataset.marks), 0));
    const strokes = Array.from(document.querySelectorAll('.tl-bar path'), (path) => path.getAttribute('d'));
    say('strokes', strokes.reduce((sum, d) => sum + d.split('h').length - 1, 0));
    say('drawn', strokes.length > 0 && document.querySelector('.tl-bar path').getTotalLength() > 0);

    const table = document.querySelector('table.results');
    const label = (row) => row.cells[0].firstChild.textContent.trim();
    const labels = () => Array.from(table.tBodies[0].rows, label).join(',');
    table.tHead.rows[0].cells[1].click();
    say('sorted-up', labels());
    table.tHead.rows[0].cells[1].click();
    say('sorted-down', labels());

    const before = bars[0].getAttribute('viewBox');
    document.querySelector('.tl-tools button[title="Zoom in"]').click();
    say('zoomed', before !== bars[0].getAttribute('viewBox'));
    document.querySelector('.tl-tools button[title="Show everything"]').click();
    say('whole-again', before === bars[0].getAttribute('viewBox'));
    const box = bars[0].getBoundingClientRect();
    bars[0].dispatchEvent(new PointerEvent('pointermove', { clientX: box.left + 2, clientY: box.top + 5 }));
    say('tip', document.querySelector('.tl-tip').textContent.split('\n').join('; '));

    say('overflow', document.documentElement.scrollWidth > window.innerWidth);
    say('requests', performance.getEntriesByType('resource').length);
  } catch (error) {
    window.faults.push(String(error));
  }
  say('faults', window.faults.length + ' ' + window.faults.join(' | '));
  const probe = document.createElement('pre');
  probe.id = 'probe';
  probe.textContent = '\n' + lines.join('\n') + '\n';
  document.body.append(probe);
});
</script>
)";

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::cerr << "usage: render-report FILE.html\n";
    return 2;
  }
  std::string html = longhaul::report_html(longhaul::testing::small_results(), longhaul::testing::small_bundle());
  html.insert(html.find("<head>") + 6, kBefore);
  html.insert(html.rfind("</body>"), kAfter);
  std::ofstream out(argv[1], std::ios::binary);
  out << html;
  return out.good() ? 0 : 1;
}
