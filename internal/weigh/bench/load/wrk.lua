-- SPDX-License-Identifier: Apache-2.0
--
-- What wrk runs after the load: it prints what wrk counted as one line of
-- JSON, with the latencies in microseconds. wrk's own methods walk its whole
-- table for every value they return, which takes minutes for a wide spread, so
-- the table is read in place (stats.h of wrk 4.0 to 4.2) and believed only
-- if it agrees with what wrk says of itself.

local function distribution(latency)
  local found, ffi = pcall(require, "ffi")
  if not found then return nil end
  ffi.cdef "struct latencies { uint64_t count, limit, min, max, data[1]; };"
  local table_ = ffi.cast("struct latencies **", latency)[0]
  local count, low, high = tonumber(table_.count), tonumber(table_.min), tonumber(table_.max)
  if count == 0 then return {} end
  if low ~= latency.min or high ~= latency.max or high >= tonumber(table_.limit) then return nil end
  local pairs_, sum = {}, 0
  for us = low, high do
    local n = tonumber(table_.data[us])
    if n > 0 then
      pairs_[#pairs_ + 1] = string.format("[%d,%d]", us, n)
      sum = sum + n
    end
  end
  if sum ~= count then return nil end
  return pairs_
end

local function percentiles(latency)
  local steps = {}
  for i = 0, 200 do
    steps[#steps + 1] = string.format("[%g,%d]", i / 2, latency:percentile(i / 2))
  end
  return steps
end

function done(summary, latency)
  local e = summary.errors
  local name, values = "latencies_us", distribution(latency)
  if not values then name, values = "percentiles_us", percentiles(latency) end
  io.write(string.format(
    '\n{"requests":%d,"duration_us":%d,"errors":{"connect":%d,"read":%d,"write":%d,"status":%d,"timeout":%d},"%s":[%s]}\n',
    summary.requests, summary.duration, e.connect, e.read, e.write, e.status, e.timeout, name, table.concat(values, ",")))
end
