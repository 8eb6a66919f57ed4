#include "tests/hygiene/definitions.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <map>
#include <string_view>

namespace longhaul::hygiene {
namespace {

struct Token {
  std::string_view text;
  std::int64_t line = 0;
};

using Tokens = std::vector<Token>;

bool is_word(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; }
bool is_word(const Token& token) { return is_word(token.text.front()); }

bool is_one_of(std::string_view text, std::initializer_list<std::string_view> words) {
  return std::find(words.begin(), words.end(), text) != words.end();
}

// Blanks preprocessor lines with their continuations.
std::string without_directives(std::string code) {
  bool blank = false;
  bool line_start = true;
  for (std::size_t i = 0; i < code.size(); ++i) {
    const char c = code[i];
    if (line_start && c == '#') blank = true;
    if (c == '\n') {
      line_start = true;
      if (i == 0 || code[i - 1] != '\1') blank = false;
      continue;
    }
    if (c != ' ') line_start = false;
    // A continuation is kept as a mark until its line break is read; it is no token.
    if (blank) code[i] = c == '\\' ? '\1' : ' ';
  }
  std::replace(code.begin(), code.end(), '\1', ' ');
  return code;
}

// Words, "::" and "->", "==" and other pairs as single characters. `code` must outlive the tokens.
Tokens tokenise(std::string_view code) {
  Tokens tokens;
  std::int64_t line = 1;
  for (std::size_t at = 0; at < code.size();) {
    std::size_t length = 1;
    if (code[at] == '\n') ++line;
    if (std::isspace(static_cast<unsigned char>(code[at])) == 0) {
      while (is_word(code[at]) && at + length < code.size() && is_word(code[at + length])) ++length;
      if (code.substr(at, 2) == "::" || code.substr(at, 2) == "->") length = 2;
      tokens.push_back({code.substr(at, length), line});
    }
    at += length;
  }
  return tokens;
}

// Index behind the bracket that closes the one at `open`; the end when none does.
std::size_t behind_bracket(const Tokens& tokens, std::size_t open) {
  const std::string_view opening = tokens[open].text;
  const std::string_view closing = opening == "{" ? "}" : opening == "(" ? ")" : opening == "[" ? "]" : ">";
  std::int64_t depth = 0;
  for (std::size_t i = open; i < tokens.size(); ++i) {
    if (tokens[i].text == opening) ++depth;
    if (tokens[i].text == closing && --depth == 0) return i + 1;
  }
  return tokens.size();
}

std::string join(const Tokens& tokens) {
  std::string text;
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    const bool words = i > 0 && is_word(tokens[i - 1]) && is_word(tokens[i]);
    text += fmt::format("{}{}", words ? " " : "", tokens[i].text);
  }
  return text;
}

// A parameter without its default and its name: "const Box& box = {}" -> "const Box&".
std::string parameter_type(Tokens parameter) {
  const auto same = [](std::string_view text) { return [text](const Token& token) { return token.text == text; }; };
  parameter.erase(std::find_if(parameter.begin(), parameter.end(), same("=")), parameter.end());
  const std::size_t size = parameter.size();
  const bool named = size > 1 && is_word(parameter.back()) && parameter[size - 2].text != "::" &&
                     !is_one_of(parameter[size - 2].text, {"const", "unsigned", "typename"}) &&
                     !is_one_of(parameter.back().text, {"const", "int", "char", "long", "double"});
  if (named) parameter.pop_back();
  return join(parameter);
}

// The types in the parameter list that opens at `open`.
std::string parameter_types(const Tokens& tokens, std::size_t open) {
  const std::size_t end = behind_bracket(tokens, open) - 1;
  std::vector<std::string> types;
  Tokens parameter;
  std::int64_t depth = 0;
  for (std::size_t i = open + 1; i < end; ++i) {
    const std::string_view text = tokens[i].text;
    if (is_one_of(text, {"(", "<", "{", "["})) ++depth;
    if (is_one_of(text, {")", ">", "}", "]"})) --depth;
    if (text == "," && depth == 0) {
      types.push_back(parameter_type(parameter));
      parameter.clear();
    } else {
      parameter.push_back(tokens[i]);
    }
  }
  if (!parameter.empty()) types.push_back(parameter_type(parameter));
  return fmt::format("({})", fmt::join(types, ", "));
}

// What stands before a body or a semicolon, without template<...>, attributes and other things in brackets that say
// nothing about the name.
Tokens bare_head(const Tokens& head) {
  Tokens bare;
  for (std::size_t i = 0; i < head.size();) {
    const std::string_view text = head[i].text;
    const std::string_view next = i + 1 < head.size() ? head[i + 1].text : "";
    const bool called = is_one_of(text, {"alignas", "__attribute__", "__launch_bounds__", "decltype", "noexcept"});
    if (text == "template" && next == "<") {
      i = behind_bracket(head, i + 1);
    } else if (text == "[" && next == "[") {
      i = behind_bracket(head, i);
    } else if ((called || text == "requires" || text == "explicit") && next == "(") {
      i = behind_bracket(head, i + 1);
    } else {
      bare.push_back(head[i]);
      ++i;
    }
  }
  return bare;
}

class Scanner {
 public:
  Scanner(const SourceFile& file, Tokens tokens) : path_(file.path), tokens_(std::move(tokens)) {}

  std::vector<Definition> scan() {
    scopes_.push_back({"", true});
    Tokens head;
    while (at_ < tokens_.size()) {
      const std::string_view text = tokens_[at_].text;
      if (text == ";") {
        variable(head);
        head.clear();
        ++at_;
      } else if (text == "}") {
        if (scopes_.size() > 1) scopes_.pop_back();
        head.clear();
        ++at_;
      } else if (text == "(" || text == "[") {
        const std::size_t end = behind_bracket(tokens_, at_);
        head.insert(head.end(), tokens_.begin() + at(at_), tokens_.begin() + at(end));
        at_ = end;
      } else if (text == "{") {
        if (opened(head)) head.clear();
      } else {
        head.push_back(tokens_[at_++]);
      }
    }
    return std::move(definitions_);
  }

 private:
  struct Scope {
    std::string name;  // with "::" behind it
    bool external = true;
  };

  static std::ptrdiff_t at(std::size_t index) { return static_cast<std::ptrdiff_t>(index); }

  void add(Definition::Kind kind, const std::string& name, std::int64_t line) {
    const auto external = [](const Scope& scope) { return scope.external; };
    if (!std::all_of(scopes_.begin(), scopes_.end(), external)) return;
    std::string qualified;
    for (const Scope& scope : scopes_) qualified += scope.name;
    definitions_.push_back({kind, qualified + name, path_, line});
  }

  // At a "{" behind `head`. Moves behind it (a namespace) or behind its "}"; true when the statement ends there.
  bool opened(Tokens& full_head) {
    const Tokens head = bare_head(full_head);
    const auto has = [&](std::string_view text) {
      return std::any_of(head.begin(), head.end(), [&](const Token& token) { return token.text == text; });
    };
    if (has("namespace") || (head.size() == 1 && head[0].text == "extern")) {
      open_namespace(head);
      ++at_;
      return true;
    }
    const bool initialiser = assigned(head) || head.empty();
    const bool list = !initialiser && in_initialiser_list(head);
    const std::size_t end = behind_bracket(tokens_, at_);
    if (list || initialiser) {  // the statement goes on behind the braces
      full_head.insert(full_head.end(), tokens_.begin() + at(at_), tokens_.begin() + at(end));
      at_ = end;
      return false;
    }
    const bool a_type = has("struct") || has("class") || has("union") || has("enum");
    const bool called = has("(");
    if (a_type && !called) {
      type(head);
    } else if (called) {
      function(head);
    } else {
      variable(full_head);
    }
    at_ = end;
    return true;
  }

  void open_namespace(const Tokens& head) {
    Scope scope{"", true};
    if (head.back().text == "namespace") scope.external = false;
    for (const Token& token : head) {
      if (is_one_of(token.text, {"namespace", "inline", "extern"})) continue;
      scope.name += token.text;
    }
    if (!scope.name.empty()) scope.name += "::";
    scopes_.push_back(scope);
  }

  // An "=" that is no part of an operator's name.
  static bool assigned(const Tokens& head) {
    for (std::size_t i = 0; i < head.size(); ++i) {
      if (head[i].text == "operator") return false;
      if (head[i].text == "(") i = behind_bracket(head, i) - 1;
      if (head[i].text == "=") return true;
    }
    return false;
  }

  // X::X(...) : a_{1}, b_(2) {: braces behind a name in there initialise a member.
  static bool in_initialiser_list(const Tokens& head) {
    for (std::size_t i = 0; i + 1 < head.size(); ++i) {
      if (head[i].text == ")" && head[i + 1].text == ":") return is_word(head.back()) || head.back().text == ">";
    }
    return false;
  }

  void type(const Tokens& head) {
    std::size_t key = 0;
    while (!is_one_of(head[key].text, {"struct", "class", "union", "enum"})) ++key;
    std::size_t first = key + 1;
    if (first < head.size() && is_one_of(head[first].text, {"struct", "class"})) ++first;
    Tokens name;
    for (std::size_t i = first; i < head.size() && !is_one_of(head[i].text, {":", "final"}); ++i) {
      name.push_back(head[i]);
    }
    if (!name.empty()) add(Definition::Kind::kType, join(name), name.front().line);
  }

  void function(const Tokens& head) {
    std::size_t open = 0;
    while (head[open].text != "(") ++open;
    if (open == 0) return;
    std::size_t first = open - 1;  // of the name
    for (std::size_t i = open; i-- > 0;) {
      if (head[i].text == "operator") first = i;
      if (head[i].text == "static") return;
    }
    if (head[first].text == "operator" && open + 1 < head.size() && head[open + 1].text == ")") {
      open = std::min(open + 2, head.size() - 1);  // operator()
    }
    if (first > 0 && head[first - 1].text == "::") return;  // a member: its type is found
    const Tokens name(head.begin() + at(first), head.begin() + at(open));
    add(Definition::Kind::kFunction, join(name) + parameter_types(head, open), name.front().line);
  }

  // "inline constexpr T kName = ..." and "concept Name = ...": of variables only these have external linkage and stand
  // in headers.
  void variable(const Tokens& full_head) {
    const Tokens head = bare_head(full_head);
    if (head.size() < 2) return;
    const bool concept_ = head[0].text == "concept";
    const bool inline_ = std::any_of(head.begin(), head.end(), [](const Token& t) { return t.text == "inline"; });
    std::size_t end = 0;
    while (end < head.size() && !is_one_of(head[end].text, {"=", "["})) ++end;
    if ((!concept_ && !inline_) || end == 0 || !is_word(head[end - 1])) return;
    const auto is_call = [](const Token& token) { return token.text == "("; };
    if (std::any_of(head.begin(), head.begin() + at(end), is_call)) return;  // a function's declaration
    const Token& name = head[end - 1];
    add(concept_ ? Definition::Kind::kType : Definition::Kind::kVariable, std::string(name.text), name.line);
  }

  std::string path_;
  Tokens tokens_;
  std::size_t at_ = 0;
  std::vector<Scope> scopes_;
  std::vector<Definition> definitions_;
};

bool ships_in_the_program(const SourceFile& file) {
  constexpr std::array kFolders = {"sim/", "kernels/", "validate/", "reports/"};
  return is_cpp(file) && std::any_of(kFolders.begin(), kFolders.end(),
                                     [&](std::string_view folder) { return file.path.starts_with(folder); });
}

}  // namespace

std::vector<Definition> external_definitions(const SourceFile& file) {
  const std::string code = without_directives(blank_comments_and_strings(file.text));
  return Scanner(file, tokenise(code)).scan();
}

Findings check_one_definition(const std::vector<SourceFile>& files) {
  std::map<std::string, Definition> first;  // by name
  Findings findings;
  for (const SourceFile& file : files) {
    if (!ships_in_the_program(file)) continue;
    for (const Definition& definition : external_definitions(file)) {
      if (definition.name.starts_with("main(")) continue;
      const auto [known, added] = first.emplace(definition.name, definition);
      if (added || known->second.path == file.path) continue;
      findings.push_back({file.path, definition.line,
                          fmt::format("{} is defined in {}:{} as well: one name, one definition", definition.name,
                                      known->second.path, known->second.line)});
    }
  }
  return findings;
}

}  // namespace longhaul::hygiene
