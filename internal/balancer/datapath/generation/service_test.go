// SPDX-License-Identifier: Apache-2.0

package generation

import "github.com/jeoul/jeoul/internal/test/testservice"

const testTableSize = testservice.TableSize

var (
	testService, addBackends = testservice.New, testservice.AddBackends
	vip4                     = testservice.VIP4
)
