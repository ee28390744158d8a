// _core: the Python face of libsyrtos.so. Its types are described in python/syrtos/_core.pyi.
#include "binding/binding.h"

PYBIND11_MODULE(_core, module) {
  module.doc() = "Native core of Syrtos; private, use the syrtos package.";
  syrtos::binding::BindErrors(module);
  syrtos::binding::BindConfig(module);
  syrtos::binding::BindStore(module);
  syrtos::binding::BindCompletion(module);
  syrtos::binding::BindEngine(module);
  syrtos::binding::BindInfo(module);
  syrtos::binding::BindTensor(module);
}
