// A file that the build embeds as text (cmake/TenonEmbed.cmake).
#pragma once

namespace tenon {

struct EmbeddedText {
  const char* name;
  const char* text;
};

}  // namespace tenon
