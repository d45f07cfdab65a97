// SPDX-License-Identifier: Apache-2.0

package direct

import (
	"github.com/google/go-cmp/cmp"
	"github.com/jeoul/jeoul/internal/weigh/bench/subject"
	"github.com/jeoul/jeoul/internal/weigh/bench/subject/subjecttest"
	"testing"
)

func TestTargets(t *testing.T) {
	for _, tc := range []struct {
		running subject.Running
		want    []string
	}{
		{&runningDirect{setup: subjecttest.Paper()}, []string{"198.18.0.100:80", "198.18.0.100:80", "198.18.0.100:80"}},
		{&runningDirect{setup: subjecttest.BulkPaper()}, []string{"198.18.2.1:5201", "198.18.2.2:5202", "198.18.2.1:5201"}},
		{&runningRouted{setup: subjecttest.Paper()}, []string{"198.18.0.100:80", "198.18.0.100:80", "198.18.0.100:80"}},
		{&runningRouted{setup: subjecttest.BulkPaper()}, []string{"198.18.2.1:5201", "198.18.2.2:5202", "198.18.2.1:5201"}},
	} {
		var got []string
		for i := range tc.want {
			got = append(got, tc.running.Target(i).String())
		}
		if diff := cmp.Diff(tc.want, got); diff != "" {
			t.Errorf("%T (-want +got):\n%s", tc.running, diff)
		}
	}
}
