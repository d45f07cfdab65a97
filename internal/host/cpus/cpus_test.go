// SPDX-License-Identifier: Apache-2.0

package cpus

import (
	"testing"

	"k8s.io/utils/cpuset"
)

func TestMask(t *testing.T) {
	for list, want := range map[string]string{
		"":         "0",
		"0":        "1",
		"0-3":      "f",
		"31":       "80000000",
		"32":       "1,00000000",
		"0,33,64":  "1,00000002,00000001",
		"8-11,127": "80000000,00000000,00000000,00000f00",
	} {
		set, err := cpuset.Parse(list)
		if err != nil {
			t.Fatal(err)
		}
		if got := Mask(set); got != want {
			t.Errorf("Mask(%s) = %s, not %s", list, got, want)
		}
		if got := "00000000," + Mask(set); !SameMask(got, want) {
			t.Errorf("%s is not the same as %s", got, want)
		}
	}
	if SameMask("1,00000000", "1") {
		t.Error("two sets are the same")
	}
}
