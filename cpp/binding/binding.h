// What the bind_*.cc files share: Status -> exception, leaving the GIL, and lifetimes across fork.
//
// One bind_x.cc per part of the core, each exporting one BindX(module). Bindings convert, never
// decide.
#pragma once

#include <pybind11/pybind11.h>
#include <unistd.h>

#include <exception>
#include <memory>
#include <type_traits>
#include <utility>

#include "syrtos/base/fork_guard.h"
#include "syrtos/base/result.h"

namespace syrtos::binding {

namespace py = pybind11;

// Carries a failed Status to the translator in bind_errors.cc, the one place where it becomes a
// Python exception. May be thrown with or without the GIL.
class StatusError : public std::exception {
 public:
  explicit StatusError(Status status) : status_(std::move(status)) {}
  const Status& status() const { return status_; }
  const char* what() const noexcept override { return status_.message().c_str(); }

 private:
  Status status_;
};

inline void RaiseIfFailed(const Status& status) {
  if (!status.ok()) throw StatusError(status);
}

template <typename T>
T Unwrap(Result<T> result) {
  RaiseIfFailed(result.status());
  return std::move(result).value();
}

// Takes the GIL again. While Python is finalizing, PyEval_RestoreThread ends every thread but the
// finalizing one by unwinding it, which a destructor on the way turns into an abort; such a thread
// sleeps here until the process is gone instead, as Python 3.14 does by itself (CPython issue
// 42969).
inline void TakeGil(PyThreadState* state) {
#if PY_VERSION_HEX >= 0x030D0000
  bool finalizing = Py_IsFinalizing() != 0;
#else
  bool finalizing = _Py_IsFinalizing() != 0;
#endif
  if (finalizing && gettid() != getpid()) {
    while (true) pause();
  }
  PyEval_RestoreThread(state);
}

// Runs `work` without the GIL. Deliberately no guard object: see TakeGil.
template <typename Work>
auto WithoutGil(Work&& work) -> std::invoke_result_t<Work> {
  PyThreadState* state = PyEval_SaveThread();
  try {
    if constexpr (std::is_void_v<std::invoke_result_t<Work>>) {
      work();
      TakeGil(state);
    } else {
      auto result = work();
      TakeGil(state);
      return result;
    }
  } catch (const std::exception&) {
    TakeGil(state);
    throw;
  }
}

// Ownership of something that has threads or sockets. It is destroyed without the GIL, since that
// may join a thread; in a forked child, where those threads do not exist, it is leaked.
template <typename T>
std::shared_ptr<T> ShareAcrossFork(std::unique_ptr<T> object) {
  uint64_t born = ForkGeneration();
  return std::shared_ptr<T>(object.release(), [born](T* pointer) {
    if (ForkGeneration() != born) return;
    if (PyGILState_Check() != 0) {
      WithoutGil([pointer] { delete pointer; });
    } else {
      delete pointer;
    }
  });
}

void BindErrors(py::module_& module);
void BindConfig(py::module_& module);
void BindStore(py::module_& module);
void BindCompletion(py::module_& module);
void BindEngine(py::module_& module);
void BindInfo(py::module_& module);
void BindTensor(py::module_& module);

}  // namespace syrtos::binding
