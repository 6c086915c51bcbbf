// The layers of layer_factory.h, whole, on one rank.
#pragma once

#include "models/layers/layer_factory.h"

namespace lockstep {

const LayerFactory& whole_layers();

}  // namespace lockstep
