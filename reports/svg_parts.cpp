#include "reports/svg_parts.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "reports/format.h"

namespace longhaul {
namespace {

constexpr double kLetterWidth = 6.2;        // of 11 px text, on average
constexpr double kTitleLetterWidth = 11.6;  // of 18 px text, bold
constexpr std::size_t kLeastLabel = 4;      // letters that still say something
constexpr std::size_t kMaxWhatIfs = 12;
constexpr double kLine = 16;

constexpr const char* kStyle =
    "<style>svg{font-family:system-ui,-apple-system,'Segoe UI',Roboto,'DejaVu Sans',sans-serif;"
    "--text:#1c2127;--soft:#5b646e;--line:#8b929b;--box:#eef1f4;--frame:#c9ced5;--page:#ffffff}"
    "@media(prefers-color-scheme:dark){svg{--text:#e6e9ed;--soft:#a4adb7;--line:#7d8690;--box:#2a3037;--frame:#4a525b;"
    "--page:#16191d}}"
    ".page{fill:var(--page)}text{font-size:11px;fill:var(--text)}.title{font-size:18px;font-weight:650}"
    ".name{font-weight:600;font-size:12px;paint-order:stroke;stroke:var(--page);stroke-width:3px}"
    ".small{fill:var(--soft)}.rate{fill:var(--soft);paint-order:stroke;stroke:var(--page);stroke-width:3px}"
    ".on-gpu{fill:#fff}.on-nic{fill:#1c2127;font-size:10px}.node{fill:none;stroke:var(--frame);stroke-width:1.5}"
    ".more{fill:var(--page);stroke:var(--line);stroke-dasharray:3 3}.fabric{fill:var(--box);stroke:var(--frame)}"
    ".gpu{fill:#3a6db3}.idle{fill:var(--box);stroke:var(--frame)}.nic{fill:#de8a2c}.nvlink{stroke:#3a6db3;"
    "stroke-width:1.5;fill:none}.pcie{stroke:var(--line)}.network{stroke:#de8a2c}.uplink{stroke:var(--line);"
    "stroke-width:2.5}.changed{stroke:#b5469b;stroke-width:2.5;fill:none}.down{stroke:#c93838;stroke-width:2;"
    "stroke-dasharray:2 4;fill:none}</style>";

// The place of every letter in UTF-8 text, and its end.
std::vector<std::size_t> letters_of(const std::string& text) {
  std::vector<std::size_t> places;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if ((static_cast<unsigned char>(text[i]) & 0xC0) != 0x80) places.push_back(i);
  }
  places.push_back(text.size());
  return places;
}

// As much of `label` as `fits` letters hold; nothing where that says too little.
std::string cut_label(const std::string& label, std::size_t fits) {
  const std::vector<std::size_t> letters = letters_of(label);
  if (letters.size() - 1 <= fits) return label;
  return fits < kLeastLabel ? "" : label.substr(0, letters[fits - 1]) + "\u2026";
}

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
  const std::string shown = cut_label(label, fits);
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

std::string svg_link_style(const Cluster& cluster, LinkId out, LinkId in, std::string_view plain) {
  const auto down = [&](LinkId link) { return cluster.links()[static_cast<std::size_t>(link)].down; };
  if (down(out) || down(in)) return "down";
  return cluster.is_changed(out) || cluster.is_changed(in) ? "changed" : std::string(plain);
}

std::string svg_paragraph(double x, double& y, double width, const std::string& content) {
  const auto fits = std::max<std::size_t>(kLeastLabel, static_cast<std::size_t>(std::max(0.0, width / kLetterWidth)));
  std::string text;
  std::string rest = content;
  while (!rest.empty()) {
    const std::vector<std::size_t> letters = letters_of(rest);
    std::size_t end = letters[std::min(fits, letters.size() - 1)];
    const std::size_t space = end < rest.size() ? rest.rfind(' ', end) : std::string::npos;
    if (space != std::string::npos && space > 0) end = space;
    text += svg_text(x, y, rest.substr(0, end), "small");
    y += kLine;
    rest.erase(0, end + (end < rest.size() && rest[end] == ' ' ? 1 : 0));
  }
  return text;
}

std::string svg_what_ifs(double x, double& y, double width, const Topology& topology) {
  std::string text;
  const std::size_t shown = std::min(topology.what_ifs.size(), kMaxWhatIfs);
  for (std::size_t i = 0; i < shown; ++i) {
    text += svg_paragraph(x, y, width, "what if: " + topology.what_ifs[i].to_string());
  }
  const std::size_t more = topology.what_ifs.size() - shown;
  return more == 0 ? text : text + svg_paragraph(x, y, width, fmt::format("+ {} more what-ifs", more));
}

double svg_title_width(const std::string& title, double margin) {
  return 2 * margin + kTitleLetterWidth * static_cast<double>(letters_of(title).size() - 1);
}

std::string svg_document(double width, double height, const std::string& title, const std::string& description,
                         const std::string& body) {
  return fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0:.0f} {1:.0f}\" width=\"{0:.0f}\" "
      "height=\"{1:.0f}\" role=\"img\"><title>{2}</title><desc>{3}</desc>{4}"
      "<rect class=\"page\" width=\"{0:.0f}\" height=\"{1:.0f}\"></rect>{5}</svg>\n",
      width, height, escape_html(title), escape_html(description), kStyle, body);
}

}  // namespace longhaul
