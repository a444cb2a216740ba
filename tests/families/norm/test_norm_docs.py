"""What documents say of the norms is true."""

import re

from build_tools.settings import ROOT


def test_readme_states_the_limit_of_layer_norm():
    header = (ROOT / "csrc/include/thunderkittens/kernels/norm.h").read_text()
    (width,) = re.findall(r"kNormMaxWidth = (\d+);", header)
    for name in ("README.md", "CHANGELOG.md"):
        assert re.search(rf"width 1 (…|to) {width}\b", (ROOT / name).read_text()), name
