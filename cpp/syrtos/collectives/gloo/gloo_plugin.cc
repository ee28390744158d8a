#include "syrtos/collectives/gloo/gloo_plugin.h"

#include <exception>
#include <memory>
#include <utility>

#include "syrtos/collectives/gloo/gloo_point_to_point.h"

extern "C" {

int syrtos_gloo_plugin_version() { return kSyrtosGlooPluginVersion; }

syrtos::PointToPoint* syrtos_gloo_create(const syrtos::Config* config, syrtos::Store* store,
                                         syrtos::Status* error) {
  auto wire = syrtos::GlooPointToPoint::Create(*config, *store);
  if (wire.ok()) return std::move(wire).value().release();
  *error = wire.status();
  return nullptr;
}
}
