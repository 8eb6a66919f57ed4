// The pieces that the pictures of clusters are made of. Coordinates in pixels, y downwards; one decimal, no locale.
//
// Page, text and lines follow the viewer's light or dark scheme together: a browser shows a file of its own on white
// whatever its scheme, so the page is painted.
#pragma once

#include <string>
#include <string_view>

#include "sim/cluster/cluster.h"

namespace longhaul {

struct Box {
  double x = 0, y = 0, width = 0, height = 0;
  double middle() const { return x + width / 2; }
  double bottom() const { return y + height; }
};

std::string svg_rect(const Box& box, std::string_view style, const std::string& title = "");
// A box with text in its middle, cut to what fits, with an ellipsis; a box too narrow for that has the text as title.
std::string svg_labelled(const Box& box, std::string_view style, const std::string& label,
                         std::string_view text_style = "", const std::string& title = "");
std::string svg_text(double x, double y, const std::string& content, std::string_view style = "",
                     std::string_view anchor = "start");
std::string svg_line(double x1, double y1, double x2, double y2, std::string_view style, const std::string& title = "");

// "45 GB/s" as text.
std::string svg_rate(BytesPerSecond rate);

// Style of a line that stands for `out` and `in`: `plain`, or "changed" or "down" where what-ifs say so.
std::string svg_link_style(const Cluster& cluster, LinkId out, LinkId in, std::string_view plain);

// Small text in lines of at most `width`, broken between words, the first at `y`; moves `y` below the last.
std::string svg_paragraph(double x, double& y, double width, const std::string& content);
// One such paragraph for each what-if; of very many, the first ones and how many more there are.
std::string svg_what_ifs(double x, double& y, double width, const Topology& topology);

// How wide a picture with this title has to be, with a margin at both sides.
double svg_title_width(const std::string& title, double margin);
// A whole document: style sheet, page, title, description, body.
std::string svg_document(double width, double height, const std::string& title, const std::string& description,
                         const std::string& body);

}  // namespace longhaul
