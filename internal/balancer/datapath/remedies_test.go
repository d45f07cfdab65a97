// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"slices"
	"strings"
	"testing"

	"github.com/jeoul/jeoul/internal/balancer/datapath/sharedmaps"
	"github.com/jeoul/jeoul/internal/balancer/ops"
)

// TestEveryLossHasARemedy: there is a remedy for each outcome in which packets are lost or refused.
func TestEveryLossHasARemedy(t *testing.T) {
	names, err := sharedmaps.OutcomeNames()
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		how, _, _ := strings.Cut(name, "_")
		lost := slices.Contains([]string{"dropped", "reset", "unreachable", "answered"}, how)
		if (ops.RemedyOf(name) != "") != lost {
			t.Errorf("%s has the remedy %q", name, ops.RemedyOf(name))
		}
	}
}
