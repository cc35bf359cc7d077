#include "protocol/status_pages.h"

#include <doctest/doctest.h>

#include <stdexcept>
#include <string>

namespace headrace {
namespace {

StatusPages pages(ServiceState state = {true, "", false, 1}) {
  StatusPages p;
  p.metrics = [] { return std::string("a_total 1\n"); };
  p.state = [state] { return state; };
  p.version_json = "{\"version\":\"1\"}";
  p.json["/sd/prometheus"] = [] { return std::string("[]"); };
  return p;
}

std::string ask(const std::string& line, const std::string& headers = "",
                const StatusPages& p = pages()) {
  return status_answer(line + "\r\n" + headers + "\r\n", p);
}
int code(const std::string& answer) {
  REQUIRE(answer.starts_with("HTTP/1.1 "));
  return std::stoi(answer.substr(9));
}
std::string body(const std::string& answer) { return answer.substr(answer.find("\r\n\r\n") + 4); }
bool has(const std::string& answer, const std::string& header) {
  return answer.find("\r\n" + header + "\r\n") != std::string::npos;
}

TEST_CASE("GET gives each page, HEAD its headers") {
  const std::string metrics = ask("GET /metrics HTTP/1.1", "Host: x\r\n");
  CHECK(code(metrics) == 200);
  CHECK(body(metrics) == "a_total 1\n");
  CHECK(has(metrics, "Content-Type: text/plain; version=0.0.4; charset=utf-8"));
  CHECK(has(metrics, "Content-Length: 10"));
  CHECK(has(metrics, "Connection: close"));
  const std::string head = ask("HEAD /metrics HTTP/1.1");
  CHECK(code(head) == 200);
  CHECK(has(head, "Content-Length: 10"));
  CHECK(body(head).empty());
  CHECK(code(ask("GET /metrics?name[]=a HTTP/1.0")) == 200);
  CHECK(body(ask("GET /live HTTP/1.1")) == "live\n");
  CHECK(body(ask("GET /version HTTP/1.1")) == "{\"version\":\"1\"}\n");
  CHECK(body(ask("GET /sd/prometheus HTTP/1.1")) == "[]");
}

TEST_CASE("ready and health are 503 with a reason and a time to come back") {
  for (const std::string path : {"/ready", "/health"}) {
    const std::string yes = ask("GET " + path + " HTTP/1.1");
    CHECK(code(yes) == 200);
    CHECK(body(yes) == "{\"ready\":true,\"draining\":false,\"loaded\":1.000}\n");
    CHECK_FALSE(has(yes, "Retry-After: 1"));
    const std::string no =
        ask("GET " + path + " HTTP/1.1", "", pages({false, "a \"b\"\n", true, 0.25}));
    CHECK(code(no) == 503);
    CHECK(has(no, "Retry-After: 1"));
    CHECK(body(no) ==
          "{\"ready\":false,\"why\":\"a \\\"b\\\"\\u000a\",\"draining\":true,\"loaded\":0.250}\n");
  }
  CHECK(code(ask("GET /live HTTP/1.1", "", pages({false, "", false, 0}))) == 200);
}

TEST_CASE("a page that cannot be made is 503, never half of one") {
  StatusPages broken = pages();
  broken.metrics = []() -> std::string { throw std::runtime_error("no memory"); };
  const std::string answer = ask("GET /metrics HTTP/1.1", "", broken);
  CHECK(code(answer) == 503);
  CHECK(body(answer) == "cannot be told now: no memory\n");
}

TEST_CASE("bad input: methods other than GET and HEAD") {
  for (const std::string method :
       {"POST", "PUT", "DELETE", "OPTIONS", "CONNECT", "TRACE", "BREW"}) {
    CAPTURE(method);
    const std::string answer = ask(method + " /metrics HTTP/1.1");
    CHECK(code(answer) == 405);
    CHECK(has(answer, "Allow: GET, HEAD"));
  }
  CHECK(code(ask("POST /metrics HTTP/1.1", "Content-Length: 3\r\n")) == 405);
}

TEST_CASE("bad input: paths") {
  CHECK(code(ask("GET /" + std::string(kStatusPathMax - 1, 'a') + " HTTP/1.1")) == 404);
  CHECK(code(ask("GET /" + std::string(kStatusPathMax, 'a') + " HTTP/1.1")) == 414);
  for (const std::string path :
       {"/../metrics", "/metrics/..", "//host/metrics", "/%00", "/metrics%2f", "metrics",
        "http://host/metrics", "*", "/a\\b", "/metrics#x"}) {
    CAPTURE(path);
    CHECK(code(ask("GET " + path + " HTTP/1.1")) == 400);
  }
  for (const std::string path : {"/", "/metrics/", "/Metrics", "/metrics/x", "/favicon.ico"}) {
    CAPTURE(path);
    CHECK(code(ask("GET " + path + " HTTP/1.1")) == 404);
  }
}

TEST_CASE("who asks for what is not there is told all that is, and what /ready says") {
  StatusPages all = pages();
  all.json["/sd/prometheus"] = [] { return std::string("[]"); };
  const std::string answer = status_answer("GET / HTTP/1.1\r\n\r\n", all);
  for (const std::string said :
       {"/live", "/version", "/metrics", "/ready", "/health", "/sd/prometheus", "\"ready\"",
        "\"why\"", "\"draining\"", "\"loaded\""}) {
    CAPTURE(said);
    CHECK(answer.find(said) != answer.npos);
  }
  all.json.clear();  // a worker's
  CHECK(status_answer("GET / HTTP/1.1\r\n\r\n", all).find("/sd/") == std::string::npos);
}

TEST_CASE("bad input: versions and what is no HTTP") {
  for (const std::string line : {"GET /metrics", "GET /metrics HTTP/0.9", "GET /metrics HTTP/3.0",
                                 "GET /metrics HTTP/2", "GET  /metrics HTTP/1.1",
                                 "GET /metrics HTTP/1.1 ", "\x16\x03\x01", "", "GET\t/ HTTP/1.1"}) {
    CAPTURE(line);
    CHECK(code(ask(line)) == 400);
  }
  CHECK(code(status_answer("GET /metrics HTTP/1.1\n\n", pages())) == 400);
  CHECK(code(status_answer("GET /metrics HTTP/1.1\r\n", pages())) == 400);
  CHECK(code(ask(std::string("GET /\0metrics HTTP/1.1", 22))) == 400);
  CHECK(code(ask("GET /metrics HTTP/1.1", "no colon\r\n")) == 400);
  CHECK(code(ask("GET /metrics HTTP/1.1", std::string("a: b\0c\r\n", 8))) == 400);
}

TEST_CASE("bad input: bodies") {
  for (const std::string header :
       {"Content-Length: 1", "Content-Length: 18446744073709551615", "Content-Length: -1",
        "Content-Length: 1\r\nContent-Length: 2", "Transfer-Encoding: chunked"}) {
    CAPTURE(header);
    CHECK(code(ask("GET /metrics HTTP/1.1", header + "\r\n")) == 400);
    CHECK(code(ask("HEAD /metrics HTTP/1.1", header + "\r\n")) == 400);
  }
  CHECK(code(ask("GET /metrics HTTP/1.1", "Content-Length: 0\r\n")) == 200);
}

TEST_CASE("bad input: heads that are too long are 414 by their path, else 431") {
  CHECK(code(status_answer_too_long("GET /" + std::string(9000, 'a'))) == 414);
  CHECK(code(status_answer_too_long("GET / HTTP/1.1\r\na: " + std::string(9000, 'b'))) == 431);
}

}  // namespace
}  // namespace headrace
