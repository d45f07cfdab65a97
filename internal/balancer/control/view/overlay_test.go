// SPDX-License-Identifier: Apache-2.0

package view

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// TestManyAbsent: those that have been absent for longest are forgotten first.
func TestManyAbsent(t *testing.T) {
	all := map[BackendName]Overlay{}
	for i := range MostAbsent + 3 {
		all[BackendName{"web", fmt.Sprint(i)}] = Overlay{Absent: &Absence{Since: time.Unix(int64(i), 0)}}
	}
	all[BackendName{"web", "here"}] = Overlay{}
	dropped := fmt.Sprint(DropOldest(all, func(o Overlay) *Absence { return o.Absent }))
	if diff := cmp.Diff("[web/0 web/1 web/2]", dropped); diff != "" {
		t.Errorf("dropped (-want +got):\n%s", diff)
	}
	if len(all) != MostAbsent+1 {
		t.Errorf("%d are left", len(all))
	}
}
