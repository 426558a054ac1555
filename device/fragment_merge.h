// Merges adjacent fragments, so that copy calls are paid per stretch and not per page. No CUDA here.
#pragma once

#include <span>
#include <vector>

#include "tcpx/types.h"

namespace tcpx {

/// Writes the fragments of `list` to `merged` (replaced) in the order of their destination, merging those that are adjacent
/// both in source and in destination. A merged fragment stays below 4 GiB. Allocates nothing when `merged` has room for the
/// whole list.
void merge_fragments(std::span<const Fragment> list, std::vector<Fragment>& merged);

}  // namespace tcpx
