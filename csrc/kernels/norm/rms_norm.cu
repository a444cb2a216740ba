// rms_norm: enters its launchers in the table.
#include "kernels/norm/norm_launch.cuh"
#include "kittens/host/launchers.h"

namespace thunderkittens::norm_kernels::inline KITTENS_TARGET {
namespace {

KITTENS_LAUNCHER(kRmsNormForward, launch_norm_forward<rms_norm_kind>);
KITTENS_LAUNCHER(kRmsNormBackward, launch_norm_backward<rms_norm_kind>);

}  // namespace
}  // namespace thunderkittens::norm_kernels::inline KITTENS_TARGET
