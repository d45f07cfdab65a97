// SPDX-License-Identifier: Apache-2.0

package checker

import "github.com/jeoul/jeoul/internal/balancer/health"

// tcp opens a connection, and ends it with a FIN.
func (a *ask) tcp() health.Answer {
	conn, err := a.dial("tcp")
	if err != nil {
		return a.answerOf(err)
	}
	conn.Close()
	return health.Pass("connected")
}
