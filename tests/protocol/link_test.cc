#include "protocol/link.h"

#include <doctest/doctest.h>

namespace headrace {
namespace {

TEST_CASE("endpoints in words") {
  const auto same = [](const char* text) { return to_string(parse_endpoint(text).value()); };
  CHECK(parse_endpoint("127.0.0.1:7401").value() == Endpoint{"127.0.0.1", 7401});
  CHECK(parse_endpoint("[::1]:80").value() == Endpoint{"::1", 80});
  CHECK(parse_endpoint("[fe80::1%eth0]:0").value() == Endpoint{"fe80::1%eth0", 0});
  CHECK(same("node-3.cluster_a.example:65535") == "node-3.cluster_a.example:65535");
  CHECK(same("[::1]:80") == "[::1]:80");
}

TEST_CASE("a bad endpoint is refused by its text and the reason") {
  const auto why = [](std::string_view text) {
    const auto result = parse_endpoint(text);
    REQUIRE_FALSE(result);
    CHECK(result.error().code == Errc::kInvalid);
    return result.error().message;
  };
  CHECK(why("host") == "bad address 'host': no port, want HOST:PORT");
  CHECK(why("host:") == "bad address 'host:': no port");
  CHECK(why(":80") == "bad address ':80': no host");
  CHECK(why("") == "bad address '': no port, want HOST:PORT");
  CHECK(why("h:http") == "bad address 'h:http': the port is not a number");
  CHECK(why("h:80x") == "bad address 'h:80x': the port is not a number");
  CHECK(why("h:-1") == "bad address 'h:-1': the port is not a number");
  CHECK(why("h: 80") == "bad address 'h: 80': the port is not a number");
  CHECK(why("h:65536") == "bad address 'h:65536': the port is above 65535");
  CHECK(why("h:99999999999999") == "bad address 'h:99999999999999': the port is above 65535");
  CHECK(why("::1:80") ==
        "bad address '::1:80': an IPv6 address goes into brackets, as in [::1]:7401");
  CHECK(why("[::1:80") == "bad address '[::1:80': no ']' after '['");
  CHECK(why("[::1]80") == "bad address '[::1]80': no ':PORT' after ']'");
  CHECK(why("[]:80") == "bad address '[]:80': no host");
  CHECK(why("a b:80") == "bad address 'a b:80': the host has a character that no host may have");
  CHECK(why(std::string_view("a\0b:80", 6)).find("no host may have") != std::string::npos);
  CHECK(why(std::string(300, 'a') + ":80").find("longer than 255") != std::string::npos);
}

}  // namespace
}  // namespace headrace
