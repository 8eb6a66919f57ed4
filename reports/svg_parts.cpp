#include "reports/svg_parts.h"

#include <fmt/format.h>

#include <algorithm>

#include "reports/format.h"

namespace longhaul {
namespace {

constexpr double kLetterWidth = 6.2;  // of 11 px text, on average

constexpr const char* kStyle =
    "<style>svg{font-family:system-ui,-apple-system,'Segoe UI',Roboto,'DejaVu Sans',sans-serif;"
    "--text:#1c2127;--soft:#5b646e;--line:#8b929b;--box:#eef1f4;--frame:#c9ced5;--page:#ffffff}"
    "@media(prefers-color-scheme:dark){svg{--text:#e6e9ed;--soft:#a4adb7;--line:#7d8690;--box:#2a3037;--frame:#4a525b;"
    "--page:#16191d}}"
    "text{font-size:11px;fill:var(--text)}.title{font-size:18px;font-weight:650}.name{font-weight:600;font-size:12px}"
    ".small{fill:var(--soft)}.rate{fill:var(--soft);paint-order:stroke;stroke:var(--page);stroke-width:3px}"
    ".on-gpu{fill:#fff}.on-nic{fill:#1c2127;font-size:10px}.node{fill:none;stroke:var(--frame);stroke-width:1.5}"
    ".more{fill:var(--page);stroke:var(--line);stroke-dasharray:3 3}.fabric{fill:var(--box);stroke:var(--frame)}"
    ".gpu{fill:#3a6db3}.idle{fill:var(--box);stroke:var(--frame)}.nic{fill:#de8a2c}.nvlink{stroke:#3a6db3;"
    "stroke-width:1.5;fill:none}.pcie{stroke:var(--line)}.network{stroke:#de8a2c}.uplink{stroke:var(--line);"
    "stroke-width:2.5}.changed{stroke:#b5469b;stroke-width:2.5;fill:none}.down{stroke:#c93838;stroke-width:2;"
    "stroke-dasharray:2 4;fill:none}</style>";

std::string titled(const std::string& title) {
  return title.empty() ? "" : "<title>" + escape_html(title) + "</title>";
}

}  // namespace

std::string svg_rect(const Box& box, std::string_view style, const std::string& title) {
  return fmt::format(R"(<rect class="{}" x="{:.1f}" y="{:.1f}" width="{:.1f}" height="{:.1f}" rx="4">{}</rect>)", style,
                     box.x, box.y, box.width, box.height, titled(title));
}

std::string svg_labelled(const Box& box, std::string_view style, const std::string& label, std::string_view text_style,
                         const std::string& title) {
  const auto fits = static_cast<std::size_t>(std::max(0.0, (box.width - 4) / kLetterWidth));
  const std::string shown = label.size() <= fits ? label : "";
  return svg_rect(box, style, title.empty() && shown.empty() ? label : title) +
         (shown.empty() ? "" : svg_text(box.middle(), box.y + box.height / 2 + 4, shown, text_style, "middle"));
}

std::string svg_text(double x, double y, const std::string& content, std::string_view style, std::string_view anchor) {
  return fmt::format(R"(<text class="{}" x="{:.1f}" y="{:.1f}" text-anchor="{}">{}</text>)", style, x, y, anchor,
                     escape_html(content));
}

std::string svg_line(double x1, double y1, double x2, double y2, std::string_view style, const std::string& title) {
  return fmt::format(R"(<line class="{}" x1="{:.1f}" y1="{:.1f}" x2="{:.1f}" y2="{:.1f}">{}</line>)", style, x1, y1, x2,
                     y2, titled(title));
}

std::string svg_rate(BytesPerSecond rate) { return format_bytes(rate.value) + "/s"; }

std::string svg_link_style(const Cluster& cluster, const Link& out, const Link& in, std::string_view plain) {
  if (out.down || in.down) return "down";
  const auto changed = [&](const Link& link) {
    const LinkClass& kind = cluster.link_classes()[link.link_class];
    return link.bandwidth != kind.effective() || link.latency != kind.latency;
  };
  const bool graph = cluster.topology().graph.has_value();  // its links have values of their own
  return !graph && (changed(out) || changed(in)) ? "changed" : std::string(plain);
}

std::string svg_document(double width, double height, const std::string& title, const std::string& description,
                         const std::string& body) {
  return fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0:.0f} {1:.0f}\" width=\"{0:.0f}\" "
      "height=\"{1:.0f}\" role=\"img\"><title>{2}</title><desc>{3}</desc>{4}{5}</svg>\n",
      width, height, escape_html(title), escape_html(description), kStyle, body);
}

}  // namespace longhaul
