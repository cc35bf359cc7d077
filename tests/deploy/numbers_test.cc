#include "deploy/cli/numbers.h"

#include <doctest/doctest.h>

namespace headrace::cli {
namespace {

TEST_CASE("whole numbers are the whole text, decimal and in range") {
  CHECK(parse_whole("0", 0, 9) == 0);
  CHECK(parse_whole("65535", 0, 65535) == 65535);
  CHECK(parse_whole("-7", -7, 0) == -7);
  for (const char* text : {"", " 1", "1 ", "+1", "0x10", "1e3", "1.0", "-8", "10", "nan", "1_0",
                           "99999999999999999999999", "-"}) {
    CAPTURE(text);
    CHECK(!parse_whole(text, -7, 9));
  }
}

TEST_CASE("numbers are finite and in range") {
  CHECK(parse_number("0.5", 0, 1) == 0.5);
  CHECK(parse_number("1e-6", 0, 1) == 1e-6);
  CHECK(parse_number("1e-38", 0, 1) == 1e-38);
  CHECK(parse_number("1e-400", 0, 1) == 0);
  for (const char* text :
       {"", "nan", "inf", "-inf", "NAN", "1e400", "-1", "1.5", "0.5x", "x", " 0"}) {
    CAPTURE(text);
    CHECK(!parse_number(text, 0, 1));
  }
}

TEST_CASE("ids are separated by single commas") {
  CHECK(parse_ids("1,2,3") == std::vector<Token>{1, 2, 3});
  CHECK(parse_ids("0") == std::vector<Token>{0});
  for (const char* text : {"", ",", "1,", ",1", "1,,2", "1, 2", "-1", "a", "2147483648"}) {
    CAPTURE(text);
    CHECK(!parse_ids(text));
  }
  std::string many;
  for (size_t i = 0; i < kIdsMax; ++i) many += "7,";
  CHECK(!parse_ids(many + "7"));
  many.pop_back();
  CHECK(parse_ids(many)->size() == kIdsMax);
}

// What CLI11 makes of it: the message of the error, or none.
std::string parse(CLI::Validator check, const std::string& text) {
  CLI::App app;
  std::string value;
  app.add_option("--x", value)->check(check);
  try {
    app.parse(std::vector<std::string>{text, "--x"});  // CLI11 takes them in reverse
  } catch (const CLI::ParseError& e) {
    return e.what();
  }
  return {};
}

TEST_CASE("texts have bounds and are UTF-8") {
  CHECK(parse(text_of(1, 4), "abcd").empty());
  CHECK(parse(text_of(1, 4), "abcde") == "--x: takes at most 4 bytes, not 5");
  CHECK(parse(text_of(1, 4), "") == "--x: takes a text that is not empty");
  CHECK(parse(text_of(0, 4), "").empty());
  CHECK(parse(text_of(1, 4), "a\xff") == "--x: takes UTF-8, which ends at byte 1");
}

TEST_CASE("checks of options name the range and what was typed") {
  CHECK(parse(whole(1, 9), "5").empty());
  CHECK(parse(whole(1, 9), "10") == "--x: takes a whole number from 1 to 9, not '10'");
  CHECK(parse(number(0, 1), "nan") == "--x: takes a number from 0 to 1, not 'nan'");
  CHECK(parse(number(0, 0.5), "1") == "--x: takes a number from 0 to 0.5, not '1'");
  CHECK(parse(token_ids(), "1,2").empty());
  CHECK(parse(token_ids(), "x").find("token ids like 1,2,3") != std::string::npos);
  CHECK(parse(endpoint(), "127.0.0.1:80").empty());
  for (const char* text : {"", "80", "127.0.0.1", "127.0.0.1:", ":x", "h:65536", "h:-1", "h:1x"}) {
    CAPTURE(text);
    CHECK(parse(endpoint(), text).find("takes HOST:PORT") != std::string::npos);
  }
  CHECK(parse(whole(1, 9), std::string(5000, 'x')).size() < 200);
}

TEST_CASE("a number too small for a double is taken as zero") {
  CLI::App app;
  double value = 7;
  app.add_option("--x", value)->check(number(0, 1));
  app.parse(std::vector<std::string>{"1e-400", "--x"});
  CHECK(value == 0);
}

TEST_CASE("biases, request ids, on and off, ranges without their end") {
  CHECK(parse_bias("49=-100") == LogitBias{49, -100});
  CHECK(parse_bias("0=0.5") == LogitBias{0, 0.5f});
  for (const char* text :
       {"", "=", "49", "49=", "=5", "x=5", "-1=5", "49=101", "49=nan", "1=2=3"}) {
    CAPTURE(text);
    CHECK_FALSE(parse_bias(text));
  }
  CHECK(parse_request_id("0123456789abcdef00000000000000FF") ==
        RequestId{0x0123456789abcdef, 0xff});
  for (const std::string& text :
       {std::string(), std::string(32, '0'), std::string(31, '1'), std::string(33, '1'),
        std::string(31, '1') + "g", "-" + std::string(31, '1'), "0x" + std::string(30, '1')}) {
    CAPTURE(text);
    CHECK_FALSE(parse_request_id(text));
  }
  std::string word = "on";
  CHECK(on_off()(word).empty());
  word = "yes";
  CHECK(!on_off()(word).empty());
  for (const char* text : {"0", "-1", "1.5", "nan", ""}) {
    word = text;
    CHECK(!above(0, 1)(word).empty());
  }
  word = "1";
  CHECK(above(0, 1)(word).empty());
}

}  // namespace
}  // namespace headrace::cli
