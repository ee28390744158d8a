// The backends of this build. The only file that asks what was built in: a new backend is one row.
#include <dlfcn.h>
#include <unistd.h>

#include <utility>

#include "syrtos/build_config.h"
#include "syrtos/collectives/backend_registry.h"
#include "syrtos/collectives/local/local_communicator.h"

#if SYRTOS_HAVE_GLOO
#include "syrtos/collectives/gloo/gloo_plugin.h"
#include "syrtos/collectives/packed_communicator.h"
#include "syrtos/collectives/pairwise/pairwise_communicator.h"
#endif

namespace syrtos {
namespace {

Status LocalAvailable(const Config&) { return Status::Ok(); }

Result<std::unique_ptr<Communicator>> CreateLocal(const BackendContext&) {
  return MakeLocalCommunicator();
}

#if SYRTOS_HAVE_GLOO

constexpr int kGlooScore = 10;

// DEEPBIND: torch exports gloo:: names of another age, and ours must not land there (ADR 0006).
// Sanitizers refuse to load a library with it, so their builds do without, in processes without
// torch.
#if SYRTOS_HAVE_SANITIZER
constexpr int kOpenFlags = RTLD_NOW | RTLD_LOCAL;
#else
constexpr int kOpenFlags = RTLD_NOW | RTLD_LOCAL | RTLD_DEEPBIND;
#endif

struct GlooPlugin {
  decltype(&syrtos_gloo_create) create = nullptr;
};

Status GlooMissing(const std::string& why) {
  return Status::BackendUnavailable(
      "the Gloo backend is not available: " + why +
      " Reinstall Syrtos so that libsyrtos_gloo.so lies beside libsyrtos.so, and Gloo itself "
      "(Debian, Ubuntu: apt-get install libgloo0).");
}

// The handle stays open for the life of the process: Gloo's threads, and the code and type
// information of every object and exception that came from the plug-in, live in the library.
// Opening it again only raises a counter.
Result<GlooPlugin> OpenGloo(const Config& config) {
  const std::string& path = config.gloo_plugin_path;
  if (path.empty()) return GlooMissing("no plug-in was found in the installed package.");
  if (access(path.c_str(), R_OK) != 0) return GlooMissing("cannot read " + path + ".");
  void* library = dlopen(path.c_str(), kOpenFlags);
  if (library == nullptr) {
    const char* why = dlerror();
    return GlooMissing(std::string("cannot load it: ") + (why != nullptr ? why : path.c_str()) +
                       ".");
  }
  const auto version = reinterpret_cast<decltype(&syrtos_gloo_plugin_version)>(
      dlsym(library, "syrtos_gloo_plugin_version"));
  const auto create =
      reinterpret_cast<decltype(&syrtos_gloo_create)>(dlsym(library, "syrtos_gloo_create"));
  if (version == nullptr || create == nullptr) {
    return GlooMissing(path + " is no Gloo plug-in of Syrtos.");
  }
  if (version() != kSyrtosGlooPluginVersion) {
    return GlooMissing(path + " has interface version " + std::to_string(version()) +
                       ", this library needs " + std::to_string(kSyrtosGlooPluginVersion) + ".");
  }
  return GlooPlugin{create};
}

Status GlooAvailable(const Config& config) { return OpenGloo(config).status(); }

Result<std::unique_ptr<Communicator>> CreateGloo(const BackendContext& context) {
  SYRTOS_ASSIGN_OR_RETURN(const GlooPlugin plugin, OpenGloo(*context.config));
  Status error;
  std::unique_ptr<PointToPoint> wire(plugin.create(context.config, context.store.get(), &error));
  if (wire == nullptr) return error;
  return MakePackedCommunicator(MakePairwiseCommunicator("gloo", kGlooScore, std::move(wire)));
}

#else

Status GlooAvailable(const Config&) {
  return Status::BackendUnavailable(
      "the Gloo backend is not available: this Syrtos was built without it. Install Gloo (Debian, "
      "Ubuntu: apt-get install libgloo-dev) and build Syrtos again.");
}

Result<std::unique_ptr<Communicator>> CreateGloo(const BackendContext& context) {
  return GlooAvailable(*context.config);
}

#endif

}  // namespace

const std::vector<BackendFactory>& BuiltinBackends() {
  static const std::vector<BackendFactory> rows = {
      {"local", false, LocalAvailable, CreateLocal},
      {"gloo", true, GlooAvailable, CreateGloo},
  };
  return rows;
}

}  // namespace syrtos
