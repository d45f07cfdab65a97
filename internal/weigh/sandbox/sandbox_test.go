// SPDX-License-Identifier: Apache-2.0

package sandbox

import (
	"slices"
	"strings"
	"testing"

	"github.com/jeoul/jeoul/internal/weigh/lab"
)

// TestNoProxy: a command on the client asks the balancer, and not the user's proxy, to which there is no route.
func TestNoProxy(t *testing.T) {
	for _, name := range []string{"http_proxy", "HTTPS_PROXY", "all_proxy"} {
		t.Setenv(name, "http://192.0.2.1:3128")
	}
	t.Setenv("JEOUL_TEST_KEPT", "yes")
	s := &Sandbox{lab: &lab.Lab{Dir: t.TempDir()}}
	environment := s.command("curl").Env
	for _, pair := range environment {
		if strings.Contains(pair, "3128") {
			t.Errorf("the command has %s", pair)
		}
	}
	if !slices.Contains(environment, "JEOUL_TEST_KEPT=yes") {
		t.Errorf("the command lacks other variables: %q", environment)
	}
}
