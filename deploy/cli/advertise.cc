#include "deploy/cli/advertise.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <memory>

namespace headrace::cli {

namespace {

using Addresses = std::unique_ptr<addrinfo, decltype(&freeaddrinfo)>;

// Of UDP sockets: one that is connected has its own address, and has sent nothing.
Addresses addresses_of(const std::string& host, int flags = 0) {
  constexpr const char* kAnyPort = "9";
  addrinfo wanted{};
  wanted.ai_socktype = SOCK_DGRAM;
  wanted.ai_flags = flags;
  addrinfo* found = nullptr;
  if (getaddrinfo(host.c_str(), kAnyPort, &wanted, &found) != 0) found = nullptr;
  return {found, freeaddrinfo};
}

std::string own_address(int fd) {
  sockaddr_storage own{};
  socklen_t size = sizeof own;
  if (getsockname(fd, reinterpret_cast<sockaddr*>(&own), &size) != 0) return {};
  char text[NI_MAXHOST];
  const int failed = getnameinfo(reinterpret_cast<sockaddr*>(&own), size, text, sizeof text,
                                 nullptr, 0, NI_NUMERICHOST);
  return failed == 0 ? text : "";
}

bool all_zero(const addrinfo& at) {
  if (at.ai_family == AF_INET) {
    return reinterpret_cast<const sockaddr_in*>(at.ai_addr)->sin_addr.s_addr == INADDR_ANY;
  }
  if (at.ai_family != AF_INET6) return false;
  const auto& v6 = reinterpret_cast<const sockaddr_in6*>(at.ai_addr)->sin6_addr;
  return IN6_IS_ADDR_UNSPECIFIED(&v6);
}

bool of_loopback(const std::string& address) {
  return address.rfind("127.", 0) == 0 || address == "::1";
}

// HOST, which gets port 0, or HOST:PORT.
Result<Endpoint> parse_host_port(const std::string& text) {
  const size_t bracket = text.find(']');
  const bool port = text.find(':', bracket == text.npos ? 0 : bracket) != text.npos;
  return parse_endpoint(port ? text : text + ":0");
}

}  // namespace

bool wildcard(const std::string& host) {
  const Addresses found = addresses_of(host, AI_NUMERICHOST);
  return found && all_zero(*found);
}

std::string leaves_from(const std::string& host) {
  const Addresses found = addresses_of(host);
  for (const addrinfo* at = found.get(); at != nullptr; at = at->ai_next) {
    const int fd = socket(at->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0) continue;
    std::string own;
    if (connect(fd, at->ai_addr, at->ai_addrlen) == 0) own = own_address(fd);
    close(fd);
    if (!own.empty()) return own;
  }
  return {};
}

Endpoint advertised(const Endpoint& at, const std::string& told,
                    const std::vector<std::string>& peers) {
  if (at.port == 0) return at;  // nobody listens
  if (!told.empty()) {
    Endpoint named = *parse_host_port(told);
    if (named.port == 0) named.port = at.port;
    return named;
  }
  if (!wildcard(at.host)) return at;
  for (const std::string& peer : peers) {
    const std::string own = leaves_from(peer);
    if (!own.empty() && !of_loopback(own)) return {own, at.port};
  }
  constexpr const char* kElsewhere = "192.0.2.1";  // nobody's, by RFC 5737: the default route
  const std::string own = leaves_from(kElsewhere);
  return {own.empty() ? "127.0.0.1" : own, at.port};
}

std::string advertised_host(const std::string& told) {
  const std::string host = parse_host_port(told)->host;
  return host.find(':') == host.npos ? host : "[" + host + "]";
}

CLI::Validator advertised_address() {
  return CLI::Validator(
      [](std::string& text) -> std::string {
        const auto at = parse_host_port(text);
        if (!at) return at.error().message + ", or HOST alone";
        if (wildcard(at->host)) return "'" + text + "' is no address that others can reach";
        return {};
      },
      "", "address");
}

}  // namespace headrace::cli
