#include "syrtos/transport/poller.h"

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>
#include <utility>

namespace syrtos {
namespace {

Status SystemError(const char* what) {
  return Status::Internal(std::string(what) + " failed: " + std::strerror(errno));
}

}  // namespace

Result<Event> Event::Create() {
  int fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
  if (fd < 0) return SystemError("eventfd");
  Event event;
  event.socket_ = Socket(fd);
  return event;
}

void Event::Set() {
  uint64_t one = 1;
  // Fails only when the counter is full, that is: already set.
  [[maybe_unused]] ssize_t written = write(fd(), &one, sizeof one);
}

void Event::Clear() {
  uint64_t value;
  [[maybe_unused]] ssize_t got = read(fd(), &value, sizeof value);
}

Result<Poller> Poller::Create() {
  int fd = epoll_create1(EPOLL_CLOEXEC);
  if (fd < 0) return SystemError("epoll_create1");
  Poller poller;
  poller.epoll_ = Socket(fd);
  return poller;
}

Status Poller::Add(int fd) {
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.fd = fd;
  if (epoll_ctl(epoll_.fd(), EPOLL_CTL_ADD, fd, &event) != 0) return SystemError("epoll_ctl(add)");
  return Status::Ok();
}

void Poller::Remove(int fd) { epoll_ctl(epoll_.fd(), EPOLL_CTL_DEL, fd, nullptr); }

void Poller::WatchWrite(int fd, bool on) {
  epoll_event event{};
  event.events = on ? (EPOLLIN | EPOLLOUT) : EPOLLIN;
  event.data.fd = fd;
  epoll_ctl(epoll_.fd(), EPOLL_CTL_MOD, fd, &event);
}

std::vector<int> Poller::Wait(std::optional<std::chrono::milliseconds> timeout) {
  epoll_event events[64];
  int limit = timeout ? static_cast<int>(timeout->count()) : -1;
  int n = epoll_wait(epoll_.fd(), events, 64, limit);
  std::vector<int> ready;
  for (int i = 0; i < n; ++i) ready.push_back(events[i].data.fd);
  return ready;
}

}  // namespace syrtos
