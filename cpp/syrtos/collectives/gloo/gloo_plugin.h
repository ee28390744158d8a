// The one entry of libsyrtos_gloo.so, the only file linked to Gloo.
//
// Opened with dlopen(RTLD_NOW | RTLD_LOCAL | RTLD_DEEPBIND) by builtin_backends.cc, so that the
// gloo:: names that torch exports are never mixed with ours (ADR 0006).
#pragma once

#include <string>

#include "syrtos/base/config.h"
#include "syrtos/collectives/pairwise/point_to_point.h"
#include "syrtos/transport/store.h"

extern "C" {
// Raised with every change of the interfaces that cross this edge; compared before use.
constexpr int kSyrtosGlooPluginVersion = 1;
int syrtos_gloo_plugin_version();
// Connects a full mesh of config.size ranks through `store`. Returns an owned pointer, or nullptr
// with *error set. Never throws.
syrtos::PointToPoint* syrtos_gloo_create(const syrtos::Config* config, syrtos::Store* store,
                                         syrtos::Status* error);
}
