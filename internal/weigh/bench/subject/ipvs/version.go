// SPDX-License-Identifier: Apache-2.0

package ipvs

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"regexp"

	"github.com/jeoul/jeoul/internal/weigh/bench/probe"
)

var ipvsVersion = regexp.MustCompile(`IP Virtual Server version (\S+)`)

// kernelIPVS returns the version of the kernel's IPVS.
func kernelIPVS(ctx context.Context) (string, error) {
	answer, err := readIPVS()
	if errors.Is(err, os.ErrNotExist) {
		// If this fails, the next read fails, too.
		_ = exec.CommandContext(ctx, "modprobe", "ip_vs").Run()
		answer, err = readIPVS()
	}
	if errors.Is(err, os.ErrNotExist) {
		return "", fmt.Errorf("IPVS is %w: this kernel has no module ip_vs. "+
			"Run the suite on Debian's kernel with `--lab vm`, or on a kernel that has it", probe.ErrNotInstalled)
	}
	if err != nil {
		return "", fmt.Errorf("asking the kernel for its version of IPVS: %w", err)
	}
	version := ipvsVersion.FindSubmatch(answer)
	if version == nil {
		return "", fmt.Errorf("asking the kernel for its version of IPVS: it answered %.60q", answer)
	}
	return string(version[1]), nil
}

// readIPVS returns the kernel's table of services, whose first line has the version.
func readIPVS() ([]byte, error) { return os.ReadFile("/proc/thread-self/net/ip_vs") }
