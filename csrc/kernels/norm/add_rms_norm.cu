// add_rms_norm: enters its launchers in the table.
#include "kernels/norm/norm_launch.cuh"
#include "kittens/host/launchers.h"

namespace thunderkittens::norm_kernels::inline KITTENS_TARGET {
namespace {

KITTENS_LAUNCHER(kAddRmsNormForward, launch_norm_forward<add_rms_norm_kind>);
KITTENS_LAUNCHER(kAddRmsNormBackward, launch_norm_backward<add_rms_norm_kind>);

}  // namespace
}  // namespace thunderkittens::norm_kernels::inline KITTENS_TARGET
