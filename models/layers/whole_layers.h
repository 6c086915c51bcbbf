// The layers of layer_factory.h on one rank: all of each.
#pragma once

#include "models/layers/layer_factory.h"

namespace lockstep {

const LayerFactory& whole_layers();

}  // namespace lockstep
