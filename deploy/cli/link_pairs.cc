#include "deploy/cli/link_pairs.h"

#include <signal.h>

#include <cstdio>
#include <thread>
#include <utility>

#include "deploy/cli/numbers.h"
#include "deploy/cli/options.h"
#include "deploy/cli/output.h"

namespace headrace::cli {

namespace {

using Link = nlohmann::ordered_json;
constexpr std::string_view kMark = "@link ";
constexpr auto kLook = std::chrono::milliseconds(20);

double rate(const LinkEnd::Sent& sent) {
  return sent.seconds > 0 ? static_cast<double>(sent.bytes) / sent.seconds : 0;
}

// What a child says of the link; an error: it ended without, and its last line says why.
Result<std::string> wait_for_mark(Child& child, std::chrono::steady_clock::time_point until) {
  std::string last = "it says nothing";
  while (std::chrono::steady_clock::now() < until) {
    int status = 0;
    const bool over = child.ended(status);
    for (const std::string& line : child.read_lines()) {
      if (line.starts_with(kMark)) return line.substr(kMark.size());
      if (!line.starts_with("@")) last = line;
    }
    if (over) return error(Errc::kUnavailable, last);
    std::this_thread::sleep_for(kLook);
  }
  return error(Errc::kDeadline, "it has not ended within " + std::to_string(kPairWithin.count()) +
                                    " s; its last word: " + last);
}

void end(Child& child) {
  child.signal(SIGKILL);
  for (int status = 0; child.pid() > 0 && !child.ended(status);) std::this_thread::sleep_for(kLook);
}

std::vector<std::string> words_of(const LinkOptions& options, const std::string& device,
                                  const char* option, const std::string& at) {
  std::vector<std::string> words{"doctor",     "--supervised",
                                 "--device",   device,
                                 "--link-mib", std::to_string(options.mib),
                                 option,       at};
  for (std::string& word : options.transport.arguments()) words.push_back(std::move(word));
  return words;
}

}  // namespace

void LinkOptions::add_to(CLI::App& command) {
  command
      .add_option("--link-mib", mib,
                  "MiB of KV that each test of a link hands off; 0: links are not tested")
      ->check(whole(0, LinkEnd::kMibMax))
      ->capture_default_str()
      ->group("Links");
  command
      .add_option("--peer", peer,
                  "Only test the link to HOST:PORT, where 'doctor --answer' runs (same --link-mib)")
      ->check(endpoint())
      ->group("Links");
  command.add_option("--answer", answer, "Be the other end at HOST:PORT until Ctrl-C")
      ->check(endpoint())
      ->group("Links");
  command.add_option("--device", device, "Whose link, with --peer and --answer: auto, cpu, cuda:N")
      ->check(
          CLI::Validator([](std::string& text) { return check_device_name(text); }, "", "device"))
      ->capture_default_str()
      ->group("Links");
  command
      .add_flag("--insecure-mesh", insecure_mesh,
                "Allow --answer other than loopback addresses although nothing is encrypted yet")
      ->group("Links");
  command.add_flag("--supervised", supervised)->group("");
  transport.add_to(command);
}

Link test_link(LinkEnd& end, const Endpoint& peer) {
  const auto tcp = end.send(peer, false);
  if (!tcp) return {{"error", tcp.error().message}};
  Link found{{"tcp_bytes_per_second", rate(*tcp)}};
  auto lane = end.send(peer, true);
  if (lane && lane->nccl) lane = end.send(peer, true);
  if (!lane) {
    found["why"] = lane.error().message;
  } else if (lane->nccl) {
    found["nccl_bytes_per_second"] = rate(*lane);
  } else if (end.sentence().find("NCCL ") == std::string::npos ||
             end.sentence().find("over tcp: ") != std::string::npos) {
    found["why"] = end.sentence().empty() ? "the device here is no GPU" : end.sentence();
  } else {
    found["why"] =
        "the other end takes tcp: no NCCL there, another version of it, or another host without "
        "--trust-links at both ends";
  }
  return found;
}

Link test_pair(const std::string& from, const std::string& to, const LinkOptions& options,
               const std::string& program) {
  const auto until = std::chrono::steady_clock::now() + kPairWithin;
  auto answers = Child::start(to, words_of(options, to, "--answer", "127.0.0.1:0"), program);
  if (!answers) return {{"error", answers.error().message}};
  auto found = wait_for_mark(*answers, until);
  if (found) {
    auto sends = Child::start(from, words_of(options, from, "--peer", *found), program);
    found = sends ? wait_for_mark(*sends, until) : sends.error();
    if (sends) end(*sends);
  }
  end(*answers);
  if (!found) return {{"error", found.error().message}};
  Link link = Link::parse(*found, nullptr, false);
  if (!link.is_object()) return {{"error", "its answer cannot be read"}};
  return link;
}

std::string link_text(const Link& link) {
  const auto number = [&link](const char* key) {
    char text[32];
    std::snprintf(text, sizeof text, "%.2f GB/s", link.value(key, 0.0) / 1e9);
    return std::string(text);
  };
  if (link.contains("error")) return "no hand-off: " + link.value("error", "");
  const std::string tcp = "tcp " + number("tcp_bytes_per_second");
  if (!link.contains("nccl_bytes_per_second")) return tcp + "; no NCCL: " + link.value("why", "");
  return "NCCL " + number("nccl_bytes_per_second") + ", " + tcp;
}

int answer_links(const LinkOptions& options) {
  const Endpoint at = *parse_endpoint(options.answer);
  if (const Status open = check_exposure(at, "the test of links", options.insecure_mesh);
      !open.ok())
    return fail_usage(open.message);
  sigset_t signals;
  sigemptyset(&signals);
  for (const int one : ending_signals()) sigaddset(&signals, one);
  sigprocmask(SIG_BLOCK, &signals, nullptr);
  const auto end = LinkEnd::open(options.device, options.transport, options.mib);
  if (!end) return fail(end.error());
  const auto listens = (*end)->answer(at);
  if (!listens) return fail(listens.error());
  if (options.supervised) {
    mark("link " + to_string(*listens));
  } else {
    if (!(*end)->sentence().empty()) say((*end)->sentence());
    say("answers at " + to_string(*listens) + "; at the other end: headrace doctor --peer " +
        to_string(*listens) + " --link-mib " + std::to_string(options.mib));
  }
  int signal = 0;
  sigwait(&signals, &signal);
  return kExitOk;
}

int test_peer(const LinkOptions& options, bool json) {
  const auto end = LinkEnd::open(options.device, options.transport, options.mib);
  if (!end) return fail(end.error());
  const Link link = test_link(**end, *parse_endpoint(options.peer));
  if (options.supervised) {
    mark("link " + link.dump(-1, ' ', false, Link::error_handler_t::replace));
  } else if (json) {
    print_json(link);
  } else {
    std::printf("%s to %s: %s\n", options.device.c_str(), options.peer.c_str(),
                link_text(link).c_str());
  }
  return link.contains("error") ? kExitFailed : kExitOk;
}

}  // namespace headrace::cli
