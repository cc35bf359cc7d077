#include "protocol/status_pages.h"

#include <boost/asio/buffer.hpp>
#include <boost/beast/http/empty_body.hpp>
#include <boost/beast/http/parser.hpp>
#include <cstdio>

namespace headrace {
namespace {

namespace http = boost::beast::http;

struct Reply {
  int code = 200;
  std::string body;
  const char* type = "text/plain; charset=utf-8";
};

const char* reason(int code) {
  switch (code) {
    case 200:
      return "OK";
    case 400:
      return "Bad Request";
    case 404:
      return "Not Found";
    case 405:
      return "Method Not Allowed";
    case 414:
      return "URI Too Long";
    case 431:
      return "Request Header Fields Too Large";
    default:
      return "Service Unavailable";
  }
}

std::string render(const Reply& reply, bool with_body) {
  std::string out = "HTTP/1.1 " + std::to_string(reply.code) + " " + reason(reply.code) + "\r\n";
  out += "Content-Type: " + std::string(reply.type) + "\r\n";
  out += "Content-Length: " + std::to_string(reply.body.size()) + "\r\n";
  if (reply.code == 405) out += "Allow: GET, HEAD\r\n";
  if (reply.code == 503) out += "Retry-After: " + std::to_string(kRetryAfterSeconds) + "\r\n";
  out += "Cache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\nConnection: close\r\n\r\n";
  if (with_body) out += reply.body;
  return out;
}

Reply refusal(int code, const std::string& why) { return {code, why + "\n"}; }

Reply state_page(const ServiceState& state) {
  Reply reply{state.ready ? 200 : 503, "", "application/json"};
  reply.body = std::string("{\"ready\":") + (state.ready ? "true" : "false");
  if (!state.ready) reply.body += ",\"why\":" + json_string(state.why);
  reply.body += std::string(",\"draining\":") + (state.draining ? "true" : "false");
  char loaded[32];
  std::snprintf(loaded, sizeof loaded, ",\"loaded\":%.3f}\n", state.loaded);
  reply.body += loaded;
  return reply;
}

std::string contents(const StatusPages& pages) {
  std::string out = "/live, /version, /metrics";
  for (const auto& [path, body] : pages.json) out += ", " + path;
  return out +
         ", /ready and /health; the last two are 200 or 503 with {\"ready\": BOOL, \"why\": TEXT "
         "(while not ready), \"draining\": BOOL, \"loaded\": share of the model, 0 to 1}";
}

Reply page(std::string_view path, const StatusPages& pages) {
  if (path == "/live") return {200, "live\n"};
  if (path == "/version") return {200, pages.version_json + "\n", "application/json"};
  if (path == "/ready" || path == "/health") return state_page(pages.state());
  if (path == "/metrics") {
    return {200, pages.metrics(), "text/plain; version=0.0.4; charset=utf-8"};
  }
  const auto extra = pages.json.find(path);
  if (extra != pages.json.end()) return {200, extra->second(), "application/json"};
  return refusal(404, "there is " + contents(pages));
}

// No path that could mean another one, or another host.
bool plain_path(std::string_view path) {
  if (!path.starts_with('/') || path.starts_with("//")) return false;
  if (path.find("..") != path.npos) return false;
  return path.find_first_of("%\\#") == path.npos;
}

Reply answer(const http::request<http::empty_body>& request, const StatusPages& pages) {
  if (request.method() != http::verb::get && request.method() != http::verb::head) {
    return refusal(405, "GET and HEAD are all that this port knows");
  }
  std::string_view path(request.target().data(), request.target().size());
  if (path.size() > kStatusPathMax) {
    return refusal(414, "a path has at most " + std::to_string(kStatusPathMax) + " bytes");
  }
  path = path.substr(0, path.find('?'));
  if (!plain_path(path)) return refusal(400, "not a plain path");
  try {
    return page(path, pages);
  } catch (const std::exception& problem) {
    return refusal(503, std::string("cannot be told now: ") + problem.what());
  }
}

}  // namespace

std::string json_string(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (byte < 0x20) {
      char escaped[8];
      std::snprintf(escaped, sizeof escaped, "\\u%04x", byte);
      out += escaped;
    } else {
      out += c;
    }
  }
  return out + '"';
}

std::string status_answer(std::string_view head, const StatusPages& pages) {
  http::request_parser<http::empty_body> parser;
  parser.header_limit(kStatusHeadMax);
  boost::system::error_code failed;
  parser.put(boost::asio::buffer(head.data(), head.size()), failed);
  if (failed == http::error::unexpected_body || failed == http::error::body_limit) {
    failed = {};  // by its method first: a POST is no better without a body
  }
  if (failed == http::error::need_more) failed = http::error::partial_message;
  if (failed || !parser.is_header_done()) {
    return render(refusal(400, "not an HTTP/1.1 request"), true);
  }
  const auto& request = parser.get();
  const bool with_body = request.method() != http::verb::head;
  const bool body = parser.chunked() || parser.content_length().value_or(0) > 0;
  if (body && (request.method() == http::verb::get || !with_body)) {
    return render(refusal(400, "a request here has no body"), with_body);
  }
  return render(answer(request, pages), with_body);
}

std::string status_answer_too_long(std::string_view begun) {
  const size_t line = begun.substr(0, begun.find('\r')).size();
  if (line > kStatusPathMax) {
    return render(refusal(414, "a path has at most " + std::to_string(kStatusPathMax) + " bytes"),
                  true);
  }
  return render(refusal(431, "a request has at most " + std::to_string(kStatusHeadMax) + " bytes"),
                true);
}

}  // namespace headrace
