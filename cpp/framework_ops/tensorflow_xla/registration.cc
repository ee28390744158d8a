// Registers the handlers with TensorFlow's own XLA, whose functions are found at run time in the
// TensorFlow that the process has loaded. Python asks for it once, for the interface that this
// release of TensorFlow has (syrtos/tensorflow/_xla_library.py).
#include <dlfcn.h>

#include <string>

#include "framework_ops/tensorflow_xla/group.h"
#include "framework_ops/tensorflow_xla/untyped.h"
#include "framework_ops/xla/handler.h"
#include "framework_ops/xla/mapping.h"

namespace syrtos_tf_xla {
namespace {

using syrtos_xla::XlaApi;
using syrtos_xla::XlaCallFrame;
using syrtos_xla::XlaError;

constexpr char kCollective[] = "syrtos_tensorflow_collective";
constexpr char kGroup[] = "syrtos_tensorflow_group";
constexpr char kPlatform[] = "Host";  // XLA's name of the CPU

// RTLD_NOLOAD: only a TensorFlow that is there already, never a second copy. Null if there is none.
void* Find(const char* symbol) {
  void* library = dlopen("libtensorflow_cc.so.2", RTLD_NOLOAD | RTLD_NOW | RTLD_LOCAL);
  return library != nullptr ? dlsym(library, symbol) : nullptr;
}

std::string Missing(const char* what) {
  return std::string("libtensorflow_cc.so.2 is not loaded or lacks ") + what;
}

// Set once, before the handlers are registered.
syrtos_xla::Host& TheHost() {
  static syrtos_xla::Host host = kTensorflow;
  return host;
}

XlaError* Collective(XlaCallFrame* frame) { return syrtos_xla::Handle(frame, TheHost()); }

XlaError* Group(XlaCallFrame* frame) {
  if (syrtos_xla::AnswersMetadataQuery(*frame)) return nullptr;
  if (frame->stage != syrtos_xla::kXlaExecuteStage) return nullptr;
  uint32_t group = 0;
  syrtos_xla::Outcome outcome = {syrtos_xla::kInternal, "the attribute group is missing"};
  if (syrtos_xla::ReadGroup(frame->attributes, &group) && frame->results.size == 2) {
    const auto data = [frame](int i) {
      return static_cast<syrtos_xla::XlaBuffer*>(frame->results.items[i])->data;
    };
    outcome = TellGroup(group, data(0), data(1));
  }
  if (outcome.code == 0) return nullptr;
  return syrtos_xla::MakeError(frame->api, outcome.code, outcome.text);
}

// Empty, or what XLA says against it.
std::string RegisterTyped(const XlaApi& api, const std::string& name,
                          XlaError* (*handler)(XlaCallFrame*)) {
  syrtos_xla::XlaHandlerRegisterArgs args = {};
  args.struct_size = sizeof(args);
  args.name = {name.data(), name.size()};
  args.platform = {kPlatform, sizeof(kPlatform) - 1};
  args.handlers.execute = handler;
  XlaError* error = api.Handler_Register(&args);
  if (error == nullptr) return "";
  syrtos_xla::XlaErrorGetMessageArgs message = {sizeof(message), nullptr, error, nullptr};
  api.Error_GetMessage(&message);
  return message.message;  // the error stays: this happens once at most
}

std::string RegisterTypedHandlers(bool early_futures) {
  using GetApi = const XlaApi* (*)();
  constexpr const char* kGetApi = "_ZN3xla3ffi12GetXlaFfiApiEv";  // xla::ffi::GetXlaFfiApi()
  const auto get_api = reinterpret_cast<GetApi>(Find(kGetApi));
  if (get_api == nullptr) return Missing("xla::ffi::GetXlaFfiApi");
  const XlaApi& api = *get_api();
  if (api.version.major != 0 || api.version.minor < 1) {
    return "its interface has version " + std::to_string(api.version.major) + "." +
           std::to_string(api.version.minor) + " where 0.1 or later is due";
  }
  TheHost().early_futures = early_futures;
  std::string problem = RegisterTyped(api, kCollective, Collective);
  return problem.empty() ? RegisterTyped(api, kGroup, Group) : problem;
}

std::string RegisterUntypedHandlers() {
  using Global = void* (*)();
  using Register = void (*)(void*, const std::string&, void*, const std::string&);
  // xla::CustomCallTargetRegistry::Global() and ::Register(const string&, void*, const string&)
  constexpr const char* kGlobal = "_ZN3xla24CustomCallTargetRegistry6GlobalEv";
  constexpr const char* kRegister =
      "_ZN3xla24CustomCallTargetRegistry8RegisterERKNSt7__cxx1112basic_stringIcSt11char_"
      "traitsIcESaIcEEEPvS8_";
  const auto global = reinterpret_cast<Global>(Find(kGlobal));
  const auto add = reinterpret_cast<Register>(Find(kRegister));
  if (global == nullptr || add == nullptr) return Missing("xla::CustomCallTargetRegistry");
  add(global(), std::string(kCollective) + "_untyped", reinterpret_cast<void*>(&UntypedCollective),
      kPlatform);
  add(global(), std::string(kGroup) + "_untyped", reinterpret_cast<void*>(&UntypedGroup),
      kPlatform);
  return "";
}

}  // namespace
}  // namespace syrtos_tf_xla

// Both return an empty text, or what went wrong, valid until the next call.

// TensorFlow 2.18 and newer; `early_futures` as in syrtos_xla::Host.
extern "C" __attribute__((visibility("default"))) const char* syrtos_tensorflow_xla_register_typed(
    bool early_futures) {
  static std::string problem;
  problem = syrtos_tf_xla::RegisterTypedHandlers(early_futures);
  return problem.c_str();
}

// TensorFlow 2.16 and newer.
extern "C" __attribute__((visibility("default"))) const char*
syrtos_tensorflow_xla_register_untyped() {
  static std::string problem;
  problem = syrtos_tf_xla::RegisterUntypedHandlers();
  return problem.c_str();
}
