-- Written by `partage slurm install` from slurm.conf and gres.conf, and again when they change: what
-- is changed here by hand does not last. `partage slurm check` tells when it is no longer right.
--
-- It refuses, at submission, what would never run or would wait for ever. job_submit.lua calls it:
--
--   local answer = dofile(@FILE@)(job_desc)
--   if answer ~= slurm.SUCCESS then return answer end

-- What the largest card of any node has; nothing where a job can have parts of several cards.
local LARGEST = {@LARGEST@}
-- Whether steps fail in this Slurm if a share is asked for with a type.
local TYPES_FAIL = @TYPES_FAIL@

local PARTS = { shard = "shards", mps = "mps" }
local MULTIPLES = { [""] = 1, k = 2 ^ 10, m = 2 ^ 20, g = 2 ^ 30, t = 2 ^ 40, p = 2 ^ 50 }

-- Fields of a request, and whether a count in it is about one node at most: there a job has the parts
-- of one card. What is asked for a whole job may come from several nodes.
local FIELDS = {
    { "tres_per_node", true }, { "tres_per_task", true }, { "tres_per_socket", true },
    { "tres_per_job", false },
}

-- What users wrote is printed to them again; it is cut to be short and plain.
local function shown(text)
    return (text:sub(1, 40):gsub("[^%w_.:=/-]", "?"))
end

-- "gres:shard:8", "gres/shard:8" and "shard=8" are the same; each part as its name, type and count.
local function parsed(item)
    local words = {}
    for word in (item:gsub("^gres[:/]", "") .. ":"):gmatch("([^:=]*)[:=]") do
        words[#words + 1] = word
    end
    local digits, unit = (words[#words] or ""):match("^(%d+)([kKmMgGtTpP]?)$")
    local count = 1
    if #words > 1 and digits then
        count = tonumber(digits) * MULTIPLES[unit:lower()]
        words[#words] = nil
    end
    return (words[1] or ""):lower(), table.concat(words, ":", 2), count, #words > 1
end

local function advice(name)
    local most = LARGEST[name]
    local example = most and math.min(4, most) or 4
    return "ask for " .. (most and "1 to " .. most .. " of one card" or "1 or more") ..
        ", such as --gres=" .. name .. ":" .. example
end

-- Why one part of a request is refused; nil if it is not.
local function refusal(item, name, kind, count, typed, bounded)
    local asked, parts = shown((item:gsub("^gres[:/]", ""))), PARTS[name]
    if typed and not kind:match("^%a[%w_.-]*$") then
        return asked .. " is not a number of " .. parts .. "; " .. advice(name)
    elseif typed and TYPES_FAIL then
        return asked .. " names a type, and jobs fail that ask for " .. parts ..
            " of a type; write --gres=" .. name .. ":" .. string.format("%.0f", count) ..
            ", and choose nodes with --constraint or --nodelist"
    elseif count < 1 then
        return asked .. " asks for no " .. parts .. "; leave it out, or " .. advice(name)
    elseif bounded and LARGEST[name] and count > LARGEST[name] then
        return asked .. " is more than the largest card has, and a job would wait for it for ever; " ..
            advice(name) .. ", or for a whole card with --gres=gpu:1"
    end
end

-- Why a job is refused; nil if it is not.
local function reason(job)
    local whole, shared
    for _, field in ipairs(FIELDS) do
        local request, bounded = job[field[1]], field[2]
        for item in (type(request) == "string" and request or ""):gmatch("[^,%s]+") do
            local name, kind, count, typed = parsed(item)
            if PARTS[name] then
                shared = name
                local text = refusal(item, name, kind, count, typed, bounded)
                if text then return text end
            elseif name == "gpu" and count > 0 then
                whole = true
            end
        end
    end
    if whole and shared then
        return "a job has whole cards or " .. PARTS[shared] .. ", not both; leave gpu out, or " .. shared
    end
end

-- An error in this file must not keep anybody from submitting: jobs are held to their shares all the
-- same when they start.
return function(job)
    local worked, text = pcall(reason, job)
    if not worked then
        slurm.log_error("%s", "Partage: the rule for submissions failed, and the job passes: " .. tostring(text))
        return slurm.SUCCESS
    elseif text then
        slurm.log_user("%s", "Partage: " .. text)
        return slurm.ESLURM_INVALID_GRES or slurm.ERROR
    end
    return slurm.SUCCESS
end
