#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# give-back.sh PATH...: gives files that root made under the paths of this tree to the tree's owner, who could neither
# read nor delete them otherwise.
set -euo pipefail
. "$(dirname "$0")/lib.sh"

owner=$(stat -c %u:%g "$TREE")
for path in "$@"; do
	[ ! -e "$path" ] || find "$path" -uid 0 -exec chown -h "$owner" {} +
done
