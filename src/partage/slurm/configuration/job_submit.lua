-- Written by `partage slurm install`; `partage slurm uninstall` removes it.
--
-- slurmctld asks it about each job that is submitted or changed (JobSubmitPlugins=lua). The rule is
-- read each time, so that a new one holds at once. Where it cannot be read, jobs pass: slurmctld would
-- refuse all of them for an error here.

local function answer(job_desc)
    local worked, code = pcall(function() return dofile(@FILE@)(job_desc) end)
    if worked and type(code) == "number" then return code end
    slurm.log_error("%s", "Partage: there is no rule for submissions, and the job passes: " .. tostring(code))
    return slurm.SUCCESS
end

function slurm_job_submit(job_desc, part_list, submit_uid)
    return answer(job_desc)
end

function slurm_job_modify(job_desc, job_rec, part_list, modify_uid)
    return answer(job_desc)
end

return slurm.SUCCESS
