// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"fmt"
	"strings"
	"syscall"
	"testing"

	"github.com/jeoul/jeoul/internal/balancer/lb"
)

// TestRefused: auto takes another method where a driver has no native XDP, and where it has no queues left for it; the
// reason is what the driver said.
func TestRefused(t *testing.T) {
	for _, test := range []struct {
		method Method
		err    syscall.Errno
		want   string
	}{
		{NativeXDP, syscall.EOPNOTSUPP, "has no native XDP"},
		{NativeXDP, syscall.EINVAL, "refuses native XDP (create link: invalid argument)"},
		{NativeXDP, syscall.ENOMEM, "refuses native XDP (create link: cannot allocate memory)"},
		{TCX, syscall.EINVAL, "no TCX"},
		{NativeXDP, syscall.EPERM, ""},
		{NativeXDP, syscall.EBUSY, ""},
		{GenericXDP, syscall.ENOMEM, ""},
		{TCX, syscall.ENOMEM, ""},
		{TCFilter, syscall.ENOMEM, ""},
	} {
		t.Run(fmt.Sprintf("%s, %v", test.method.Name, test.err), func(t *testing.T) {
			err, port := fmt.Errorf("create link: %w", test.err), Port{Name: "eth0"}
			if got := test.method.Refused(err); got != (test.want != "") {
				t.Errorf("refused: %v", got)
			}
			if got := test.method.MissingCapability(port, err); !strings.Contains(got, test.want) {
				t.Errorf("%q, want %q in it", got, test.want)
			}
			wanted := test.want != "" && test.method.Hook == lb.HookXDP
			if got := Explain(err, port, test.method); strings.Contains(got.Error(), "hook: tc may work") != wanted {
				t.Errorf("%v", got)
			}
		})
	}
}
