// SPDX-License-Identifier: Apache-2.0

package control

import (
	"fmt"
	"time"

	"github.com/jeoul/jeoul/internal/balancer/lb"
)

// losing are Links that know what was lost of the frames that XDP sent, by interface.
type losing interface{ XDPLost() []uint64 }

// lossEvery is how often the losses are looked at.
const lossEvery = 10 * time.Second

// lossMessages says what is lost, or may be, by the hook that is in use: a frame that a
// driver does not take was counted as forwarded before. One for each interface, empty if
// there is nothing to say.
func lossMessages(attachments []lb.Attachment, lost []uint64) []string {
	messages := make([]string, len(attachments))
	for i, a := range attachments {
		if a.Hook != lb.HookXDP {
			continue
		}
		switch frames := lossOf(lost, i); {
		case frames > 0 && a.Warning != "":
			messages[i] = fmt.Sprintf("%d frames that XDP sent are lost, though they are counted as forwarded: %s", frames, a.Warning)
		case frames > 0:
			messages[i] = fmt.Sprintf("%d frames that XDP sent on %s are lost, though they are counted as forwarded: its driver (%s) did not take them; see `ethtool -S %s`, and set hook: tc if it goes on",
				frames, a.Interface, a.Driver, a.Interface)
		case a.Warning != "":
			messages[i] = a.Warning
		}
	}
	return messages
}

func lossOf(lost []uint64, i int) uint64 {
	if i < len(lost) {
		return lost[i]
	}
	return 0
}

// xdpLost returns what was lost by each interface; nil if that is not known.
func (c *Controller) xdpLost() []uint64 {
	if links, ok := c.opt.Links.(losing); ok {
		return links.XDPLost()
	}
	return nil
}

// tellLosses logs what is lost, where that is ten times what was logged, and looks again
// later.
func (c *Controller) tellLosses() {
	attachments, lost := c.opt.DataPlane.Attachments(), c.xdpLost()
	messages := lossMessages(attachments, lost)
	for i, a := range attachments {
		if frames := lossOf(lost, i); frames > 0 && messages[i] != "" && frames >= 10*c.lost[a.Interface] {
			c.lost[a.Interface] = frames
			c.opt.Log.Warn(messages[i])
		}
	}
	c.tasks.losses.In(lossEvery)
}
