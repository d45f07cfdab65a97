// SPDX-License-Identifier: Apache-2.0

package weighcmd

import (
	"slices"
	"strings"
	"testing"

	"github.com/jeoul/jeoul/internal/weigh/vm"
)

// TestRunInAMachine checks the command for a virtual machine, without a machine.
func TestRunInAMachine(t *testing.T) {
	for _, c := range []struct {
		command benchRunCmd
		want    string
	}{
		{benchRunCmd{}, "bench run /job/suite.yaml --guest GUEST --to /tmp/results"},
		{benchRunCmd{Resume: "results/before", Repeats: 3},
			"bench run /job/suite.yaml --guest GUEST --resume /job/before --repeats 3"},
		{benchRunCmd{Quick: true, Only: []string{"direct", "routed"}, Loads: []string{"ab"}},
			"bench run /job/suite.yaml --guest GUEST --to /tmp/results --quick --only direct,routed --loads ab"},
		{benchRunCmd{Other: "bin/jeoul-other"}, "bench run /job/suite.yaml --guest GUEST --to /tmp/results --other " +
			vm.OtherPath},
	} {
		v := &vmRun{Command: &c.command}
		job, err := v.Job()
		if err != nil {
			t.Fatal(err)
		}
		if n := slices.Index(job.Args, "--guest"); n >= 0 {
			job.Args[n+1] = "GUEST"
		}
		if is := strings.Join(job.Args, " "); is != c.want {
			t.Errorf("%+v: the job is\n%s, want\n%s", c.command, is, c.want)
		}
	}
}
