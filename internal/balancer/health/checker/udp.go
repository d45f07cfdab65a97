// SPDX-License-Identifier: Apache-2.0

package checker

import (
	"bytes"
	"fmt"

	"github.com/jeoul/jeoul/internal/balancer/health"
	"github.com/jeoul/jeoul/internal/balancer/lb"
)

// datagramBytes is how much of a datagram is looked at, beyond the length of the expected answer. A buffer is held by
// each check that waits, which can be ten thousand.
const datagramBytes = 512

// udp sends a datagram, and judges the answer. A backend need not answer an empty datagram if no answer is named: ICMP
// errors alone fail it then.
func (a *ask) udp() health.Answer {
	want := a.check.UDP
	if want == nil {
		want = &lb.UDPCheck{}
	}
	conn, err := a.dial("udp")
	if err != nil {
		return a.answerOf(err)
	}
	defer conn.Close()
	if _, err := conn.Write(want.Send); err != nil {
		return a.evaluateUDP(err)
	}
	a.step("request", fmt.Sprintf("sent %d bytes", len(want.Send)), false)
	answer := make([]byte, len(want.Expect)+datagramBytes)
	n, err := conn.Read(answer)
	if err != nil {
		failed := a.evaluateUDP(err)
		if failed.Silent && len(want.Send) == 0 && len(want.Expect) == 0 {
			return health.Pass("no ICMP error")
		}
		return failed
	}
	return evaluateDatagram(answer[:n], want.Expect)
}

func evaluateDatagram(answer, expect []byte) health.Answer {
	if !bytes.HasPrefix(answer, expect) {
		return health.Fail("another answer", fmt.Sprintf("answers with %s, not with %s", excerpt(answer),
			excerpt(expect)))
	}
	return health.Pass(fmt.Sprintf("%d bytes", len(answer)))
}

// evaluateUDP has the reason for ICMP's port unreachable, which is that of a refused connection to the kernel.
func (a *ask) evaluateUDP(err error) health.Answer {
	answer := a.answerOf(err)
	if answer.Text == "connection refused" {
		return health.Fail("port unreachable", "has no server on the port (ICMP port unreachable)")
	}
	return answer
}

// excerpt quotes the beginning of data.
func excerpt(data []byte) string {
	const most = 32
	if len(data) > most {
		return fmt.Sprintf("%q… (%d bytes)", data[:most], len(data))
	}
	return fmt.Sprintf("%q", data)
}
