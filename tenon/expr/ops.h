// The factories of all nodes: the vocabulary in which models are written.
#pragma once
#include "tenon/expr_generated/all_nodes.h"
