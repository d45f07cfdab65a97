// SPDX-License-Identifier: Apache-2.0

package weighcmd

import (
	"errors"
	"strings"
	"testing"

	"github.com/jeoul/jeoul/internal/weigh/wire"
)

// FuzzWireFlags reads flags that a person may write: nothing panics, and a value that was read can be written again, or
// is a possible load.
func FuzzWireFlags(f *testing.F) {
	for _, seed := range []string{"eth0", "eth0@blue=198.19.1.0/24", "=", "@", "eth0=::1", "1:2:3", "2800:21000:1400",
		"1024-65535", "10=198.18.0.100", "02:00:5e:10:00:01", "80:1000,20:20000"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		var p wirePort
		if p.UnmarshalText([]byte(text)) == nil {
			if place, _, _ := strings.Cut(text, "="); p.Name == "" || !strings.HasPrefix(place, p.Name) {
				t.Errorf("%q names the interface %q", text, p.Name)
			}
		}
		var ports wirePorts
		if ports.UnmarshalText([]byte(text)) == nil && (ports[0] == 0 || ports[1] == 0) {
			t.Errorf("%q is ports %v", text, ports)
		}
		var m wireMark
		if m.UnmarshalText([]byte(text)) == nil && m.Point > 63 {
			t.Errorf("%q is code point %d", text, m.Point)
		}
		var mac wireMAC
		if mac.UnmarshalText([]byte(text)) == nil && len(mac) != 6 {
			t.Errorf("%q is %v", text, mac)
		}
		for _, flags := range []wireLoadFlags{{Load: "setup", Ladder: text}, {Load: "setup", Search: text},
			{Load: "mix", Sizes: text}, {Load: "session", Content: text}, {Load: "dns", Question: text}} {
			load, err := flags.Read()
			if err == nil {
				err = load.Validate()
				if err != nil {
					t.Errorf("%+v was read, and is refused: %v", flags, err)
				}
			} else if errors.Is(err, wire.ErrPort) {
				t.Errorf("%+v: %v", flags, err)
			}
		}
	})
}
