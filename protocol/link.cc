#include "protocol/link.h"

#include <charconv>
#include <utility>

namespace headrace {
namespace {

constexpr size_t kHostMax = 255;  // RFC 1035: the longest name

Status bad(std::string_view text, std::string_view why) {
  return error(Errc::kInvalid, "bad address '" + std::string(text) + "': " + std::string(why));
}

// A bare host carries no byte that a name, an IPv4 or an IPv6 address cannot.
bool host_is_clean(std::string_view host, bool v6) {
  for (char c : host) {
    const bool word = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
    const bool mark = c == '.' || c == '-' || c == '_';
    const bool v6_mark = v6 && (c == ':' || c == '%');
    if (!word && !mark && !v6_mark) return false;
  }
  return true;
}

}  // namespace

void Link::send(Bytes head, Payload payload) {
  head.insert(head.end(), payload.bytes.begin(), payload.bytes.end());
  send(std::move(head));
}

Result<Endpoint> parse_endpoint(std::string_view text) {
  std::string_view host;
  std::string_view port;
  const bool v6 = text.starts_with('[');
  if (v6) {
    const size_t close = text.find(']');
    if (close == std::string_view::npos) return bad(text, "no ']' after '['");
    host = text.substr(1, close - 1);
    if (!text.substr(close + 1).starts_with(':')) return bad(text, "no ':PORT' after ']'");
    port = text.substr(close + 2);
  } else {
    const size_t colon = text.rfind(':');
    if (colon == std::string_view::npos) return bad(text, "no port, want HOST:PORT");
    host = text.substr(0, colon);
    port = text.substr(colon + 1);
    if (host.find(':') != std::string_view::npos)
      return bad(text, "an IPv6 address goes into brackets, as in [::1]:7401");
  }
  if (host.empty()) return bad(text, "no host");
  if (host.size() > kHostMax) return bad(text.substr(0, 32), "host longer than 255 characters");
  if (!host_is_clean(host, v6)) return bad(text, "the host has a character that no host may have");
  if (port.empty()) return bad(text, "no port");
  unsigned value = 0;
  const auto [end, ec] = std::from_chars(port.data(), port.data() + port.size(), value);
  if (ec == std::errc::invalid_argument || end != port.data() + port.size())
    return bad(text, "the port is not a number");
  if (ec == std::errc::result_out_of_range || value > 65535)
    return bad(text, "the port is above 65535");
  return Endpoint{std::string(host), static_cast<uint16_t>(value)};
}

std::string to_string(const Endpoint& endpoint) {
  const bool v6 = endpoint.host.find(':') != std::string::npos;
  const std::string host = v6 ? "[" + endpoint.host + "]" : endpoint.host;
  return host + ":" + std::to_string(endpoint.port);
}

}  // namespace headrace
