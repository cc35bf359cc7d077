#include "coordinator/control_names.h"

#include <doctest/doctest.h>

#include <string>

using headrace::coordinator::ControlNames;

TEST_CASE("the longest name at a place wins") {
  ControlNames names;
  CHECK(names.add("<a>", 1));
  CHECK(names.add("<a><b>", 2));
  CHECK(names.add("b", 3));
  const std::string text = "<a><a><b>b";
  CHECK(names.match(text, 0).id == 1);
  CHECK(names.match(text, 0).bytes == 3);
  CHECK(names.match(text, 3).id == 2);
  CHECK(names.match(text, 3).bytes == 6);
  CHECK(names.match(text, 9).id == 3);
  CHECK(names.match(text, 1).bytes == 0);
  CHECK(names.match("<a", 0).bytes == 0);  // cut off
}

TEST_CASE("a name that is only the beginning of another is not found by it") {
  ControlNames names;
  CHECK(names.add("<long name>", 7));
  CHECK(names.match("<long", 0).bytes == 0);
  CHECK(names.match("<long name>", 0).id == 7);
}

TEST_CASE("empty and over-long names are refused") {
  ControlNames names;
  CHECK(!names.add("", 1));
  CHECK(!names.add(std::string(ControlNames::kNameBytesMax + 1, 'x'), 1));
  CHECK(names.match("x", 0).bytes == 0);
  CHECK(names.add(std::string(ControlNames::kNameBytesMax, 'x'), 4));
  CHECK(names.match(std::string(ControlNames::kNameBytesMax, 'x'), 0).id == 4);
}
